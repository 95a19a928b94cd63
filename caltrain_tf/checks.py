"""Argument checks, and the words in which a user hears of them.

A check of an option returns the option as plain Python: a `np.int64` from
somebody's grid search becomes an `int`, so that it can be saved as JSON.
"""

import difflib
import math
import os
import sys
import warnings
from numbers import Integral
from numbers import Real

import numpy as np

# How far a row of probabilities may be from summing to 1: wide enough for a
# thousand classes in bfloat16, narrow enough to catch undeclared logits.
SUM_TOLERANCE = 0.02
# How far rounding may push one probability out of [0, 1].
ROUNDING = 1e-6

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
# Libraries that call our code on a user's behalf.
_LIBRARIES = ("keras", "tensorflow", "jax", "torch", "sklearn")


def plain(value):
    """A NumPy scalar or 0-d array as a Python scalar; else `value` itself."""
    if isinstance(value, np.generic) or (
        isinstance(value, np.ndarray) and value.ndim == 0
    ):
        return value.item()
    return value


def check_number(name, value, *, low, high=math.inf, closed=False):
    """Returns `value` if it is a finite number in (low, high) or [low, high].

    Args:
        name: The argument's name, for the error.
        value: What came.
        low: The smallest value.
        high: The largest value.
        closed: Whether the bounds themselves are allowed.

    Returns:
        An int or a float.

    Example:
        >>> check_number("gamma", -1, low=0)
        Traceback (most recent call last):
        ...
        ValueError: `gamma` must be a finite number > 0. Received: gamma=-1
    """
    number = plain(value)
    is_number = isinstance(number, Real) and not isinstance(number, bool)
    inside = is_number and math.isfinite(number)
    if inside:
        inside = low <= number <= high if closed else low < number < high
    if not inside:
        sign = ">=" if closed else ">"
        bounds = f"{sign} {low}"
        if math.isfinite(high):
            bounds += f" and {sign.replace('>', '<')} {high}"
        raise ValueError(
            f"`{name}` must be a finite number {bounds}. "
            f"Received: {name}={value!r}"
        )
    return number


def check_count(name, value, low=1):
    """Returns `value` as an `int` if it is an integer of at least `low`."""
    number = plain(value)
    is_integer = isinstance(number, Integral) and not isinstance(number, bool)
    if not is_integer or number < low:
        raise ValueError(
            f"`{name}` must be an integer >= {low}. Received: {name}={value!r}"
        )
    return int(number)


def check_flag(name, value):
    """Returns `value` if it is True or False."""
    flag = plain(value)
    if not isinstance(flag, bool):
        raise ValueError(
            f"`{name}` must be True or False. Received: {name}={value!r}"
        )
    return flag


def check_choice(name, value, choices):
    """Returns `value` if it is one of `choices`; the error has the nearest."""
    candidate = plain(value)
    try:
        if candidate in choices and not isinstance(candidate, bool):
            return candidate
    except (TypeError, ValueError):  # An array, say, has no truth value.
        pass
    near = difflib.get_close_matches(str(value), map(str, choices), n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    listed = ", ".join(repr(choice) for choice in choices)
    raise ValueError(
        f"`{name}` must be one of {listed}.{hint} Received: {name}={value!r}"
    )


def as_array(name, values):
    """`values` as a NumPy array of real numbers, not copied if it is one.

    Args:
        name: The argument's name, for the error.
        values: A list, an array, a tensor, or anything with `__array__`.

    Returns:
        An array of floats, integers or booleans; float32 for bfloat16 and
        other types that NumPy itself does not have.
    """
    # A PyTorch tensor of bfloat16 has no array, and one that needs a gradient
    # refuses to be one.
    if hasattr(values, "detach") and hasattr(values, "cpu"):
        values = values.detach().cpu()
        if "bfloat16" in str(values.dtype):
            values = values.float()
    try:
        array = np.asarray(values)
    except Exception as error:
        raise ValueError(
            f"`{name}` must be convertible to an array. "
            f"Received: {name} of type {type(values).__name__}, where {error}"
        ) from error
    if array.dtype.kind in "fiub":
        return array
    # bfloat16 and its kind have no kind of their own in NumPy.
    if array.dtype.kind == "V" and array.dtype.names is None:
        return array.astype(np.float32)
    raise ValueError(
        f"`{name}` must hold real numbers. Received: {name} of type "
        f"{type(values).__name__}, dtype={array.dtype}"
    )


def are_probabilities(rows):
    """Whether all rows of an array `(N, K)` are probabilities.

    Logits that lie in [0, 1] and sum to 1 in every row are next to impossible,
    so that where logits are expected this says that they are none.
    """
    return bool(
        rows.size
        and rows.min() >= 0
        and rows.max() <= 1 + ROUNDING
        and np.all(np.abs(rows.sum(axis=-1) - 1) <= 1e-3)
    )


def warn(message, category=UserWarning):
    """Warns about the line of the user's that led here.

    Frames of this package, and of the libraries that called it, are skipped.
    """
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and _is_library(frame):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def _is_library(frame):
    file = frame.f_code.co_filename
    if os.path.abspath(file).startswith(_PACKAGE):
        return True
    top = frame.f_globals.get("__name__", "").partition(".")[0]
    return top in _LIBRARIES
