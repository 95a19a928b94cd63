"""Argument checks and their error messages.

A check returns the option as a plain Python value: an `np.int64` from a grid
search becomes an `int`, so that it can be saved as JSON.
"""

import difflib
import importlib
import math
import os
import sys
import warnings
from numbers import Integral, Real

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
    """Converts NumPy scalars and 0-d arrays to Python; keeps other values."""
    is_numpy = isinstance(value, (np.generic, np.ndarray))
    return value.item() if is_numpy and value.ndim == 0 else value


def number(name, value, *, low, high=math.inf, closed=False):
    """Returns `value` if it is a finite number in (low, high) or [low, high].

    Example:
        >>> number("gamma", -1, low=0)
        Traceback (most recent call last):
        ...
        ValueError: `gamma` must be a finite number > 0. Received: gamma=-1
    """
    number = plain(value)
    is_number = isinstance(number, Real) and not isinstance(number, bool)
    # Integers like 10**400 are beyond the range of floats.
    if is_number and abs(number) <= sys.float_info.max:
        if low <= number <= high if closed else low < number < high:
            return number
    equal = "=" if closed else ""
    bounds = f">{equal} {low}"
    if math.isfinite(high):
        bounds += f" and <{equal} {high}"
    raise ValueError(
        f"`{name}` must be a finite number {bounds}. Received: {name}={value!r}"
    )


def share(name, value):
    """Returns `value` if it is a number in [0, 1)."""
    result = number(name, value, low=0, high=1, closed=True)
    if result == 1:
        raise ValueError(f"`{name}` must be < 1. Received: {name}={value!r}")
    return result


def count(name, value, low=1):
    """Returns `value` as an `int` if it is an integer of at least `low`."""
    number = plain(value)
    is_integer = isinstance(number, Integral) and not isinstance(number, bool)
    if not is_integer or not low <= number < 2**63:
        raise ValueError(
            f"`{name}` must be an integer >= {low}. Received: {name}={value!r}"
        )
    return int(number)


def ignore_class(value):
    """Returns the label of examples that do not count, or None."""
    return value if value is None else count("ignore_class", value, -(2**31))


def flag(name, value):
    """Returns `value` if it is True or False."""
    if isinstance(plain(value), bool):
        return plain(value)
    raise ValueError(
        f"`{name}` must be True or False. Received: {name}={value!r}"
    )


def choice(name, value, choices):
    """Returns `value` if it is one of `choices`, or suggests the nearest."""
    candidate = plain(value)
    try:
        if candidate in choices and not isinstance(candidate, bool):
            return candidate
    except (TypeError, ValueError):  # An array has no truth value.
        pass
    near = difflib.get_close_matches(str(value).lower(), map(str, choices), 1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    listed = ", ".join(repr(choice) for choice in choices)
    raise ValueError(
        f"`{name}` must be one of {listed}.{hint} Received: {name}={value!r}"
    )


def as_array(name, values):
    """Converts anything with `__array__` to a NumPy array of real numbers.

    Arrays are not copied, unless they are of bfloat16 or another type that
    NumPy itself does not have: those become float32.
    """
    # PyTorch does not convert tensors of bfloat16, or tensors that require a
    # gradient, to arrays.
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
    # NumPy has no kind for bfloat16 and similar types, and calls them void.
    if array.dtype.kind == "V" and array.dtype.names is None:
        return array.astype(np.float32)
    raise ValueError(
        f"`{name}` must hold real numbers. Received: {name} of type "
        f"{type(values).__name__}, dtype={array.dtype}"
    )


def library(name, extra):
    """Imports a library of one of the extras of this package."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{name} is not installed. "
            f'Run `pip install "caltrain_tf[{extra}]"`.'
        ) from error


def are_probabilities(rows):
    """Whether all rows of an array `(N, K)` are probabilities, not logits."""
    return bool(
        rows.size > len(rows)
        and rows.min() >= 0
        and rows.max() <= 1 + ROUNDING
        and np.all(np.abs(rows.sum(axis=-1) - 1) <= 1e-3)
    )


def warn(message, category=UserWarning):
    """Issues a warning that points to the user's line of code.

    Frames of this package, and of the libraries that called it, are skipped.
    """

    def is_library(frame):
        if os.path.abspath(frame.f_code.co_filename).startswith(_PACKAGE):
            return True
        name = frame.f_globals.get("__name__", "")
        return name.partition(".")[0] in _LIBRARIES

    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and is_library(frame):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
