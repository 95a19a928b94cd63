"""Shim for tools that call `setup.py`; `pyproject.toml` is the metadata."""

from setuptools import setup

setup()
