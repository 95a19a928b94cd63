"""Checks of options, made where a loss, metric or calibrator is constructed."""

import difflib
import math
from numbers import Integral
from numbers import Real


def check_number(name, value, *, low, high=math.inf, closed=False):
    """Raises unless `value` is a finite number in (low, high) or [low, high].

    Args:
        name: The argument's name, for the error.
        value: What came.
        low: The smallest value.
        high: The largest value.
        closed: Whether the bounds themselves are allowed.
    """
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    inside = is_number and math.isfinite(value)
    if inside:
        inside = low <= value <= high if closed else low < value < high
    if not inside:
        sign = ">=" if closed else ">"
        bounds = f"{sign} {low}"
        if math.isfinite(high):
            bounds += f" and {sign.replace('>', '<')} {high}"
        raise ValueError(
            f"`{name}` must be a finite number {bounds}. "
            f"Received: {name}={value!r}"
        )


def check_count(name, value, low=1):
    """Raises unless `value` is an integer of at least `low`."""
    is_integer = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_integer or value < low:
        raise ValueError(
            f"`{name}` must be an integer >= {low}. Received: {name}={value!r}"
        )


def check_choice(name, value, choices):
    """Raises unless `value` is one of `choices`, with the nearest of them."""
    if value in choices:
        return
    near = difflib.get_close_matches(str(value), map(str, choices), n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    listed = ", ".join(repr(choice) for choice in choices)
    raise ValueError(
        f"`{name}` must be one of {listed}.{hint} Received: {name}={value!r}"
    )
