"""Adapters to robustness_metrics and uncertainty-baselines."""
