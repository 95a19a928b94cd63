"""Checks of the options that the metrics share."""

import math

BINNINGS = ("equal_mass", "equal_width")
ESTIMATORS = ("bin", "label")
NORMS = (1, 2, math.inf)


def check_choice(name, value, choices):
    """Raises unless `value` is one of `choices`."""
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(
            f"`{name}` must be one of {listed}. Received: {name}={value!r}"
        )


def check_count(name, value):
    """Raises unless `value` is an integer of at least 1."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(
            f"`{name}` must be an integer >= 1. Received: {name}={value!r}"
        )


def check_number(name, value, low, high=math.inf):
    """Raises unless `value` is a finite number in [low, high]."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (is_number and math.isfinite(value) and low <= value <= high):
        bounds = f">= {low}"
        if math.isfinite(high):
            bounds += f" and <= {high}"
        raise ValueError(
            f"`{name}` must be a finite number {bounds}. "
            f"Received: {name}={value!r}"
        )


def check_bins(num_bins, norm, binning, estimator="bin", debias=False):
    """Raises unless a binned calibration error can have these options."""
    check_count("num_bins", num_bins)
    check_choice("norm", norm, NORMS)
    check_choice("binning", binning, BINNINGS)
    check_choice("estimator", estimator, ESTIMATORS)
    if debias and (norm != 2 or estimator != "bin"):
        raise ValueError(
            '`debias=True` is defined for `norm=2, estimator="bin"` only. '
            f"Received: norm={norm!r}, estimator={estimator!r}"
        )
