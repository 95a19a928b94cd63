"""Predictions files, the shift benchmark and statistics over runs."""
