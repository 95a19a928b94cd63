"""Measures of calibration: exact on arrays, streaming in Keras."""
