"""Checks of the calibrators' options, made where one is constructed."""

import math
from numbers import Integral
from numbers import Real


def check_count(name, value, low=1):
    """Raises unless `value` is an integer of at least `low`."""
    is_integer = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_integer or value < low:
        raise ValueError(
            f"`{name}` must be an integer >= {low}. Received: {name}={value!r}"
        )


def check_positive(name, value, zero_allowed=False):
    """Raises unless `value` is a finite number > 0, or >= 0."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not (
        is_number
        and math.isfinite(value)
        and (value > 0 or (zero_allowed and value == 0))
    ):
        sign = ">=" if zero_allowed else ">"
        raise ValueError(
            f"`{name}` must be a finite number {sign} 0. "
            f"Received: {name}={value!r}"
        )
