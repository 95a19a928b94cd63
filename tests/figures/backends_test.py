"""Figures need no TensorFlow where Keras runs on another backend."""

import importlib.util
import os
import subprocess
import sys

import pytest

SCRIPT = """
import sys
import caltrain_tf as ct

figures = ct.figures
assert "tensorflow" not in sys.modules
figures.reliability_diagram([[0.9, 0.1], [0.2, 0.8]], [0, 0])
assert "tensorflow" not in sys.modules
"""


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_figures_without_tensorflow(backend):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    environment = {"KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
