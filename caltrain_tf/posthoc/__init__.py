"""Calibrators that are fitted after training."""
