"""Rows in, matplotlib figures out."""
