"""The temperature of the smallest negative log-likelihood.

The likelihood is convex in the inverse temperature b, so that Newton's method
on its slope, kept inside a bracket, finds the optimum. It steps in log b, where
badly scaled logits make no difference. Most of the way is gone on a sample of
the rows; the full data need about three passes.
"""

import math
import warnings
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq

from caltrain_tf.metrics.inputs import check_block
from caltrain_tf.posthoc import tempered

SAMPLE_ROWS = 2048
# Inverse temperatures that are tried, times the spread of the logits. At the
# ends the predictions are uniform, or all of one class, to float32.
LOWEST, HIGHEST = 1e-6, 1e6
# A step of this relative size leaves an error of about its square.
TOLERANCE = 1e-6
MAX_STEPS = 100


class Overview(NamedTuple):
    """What one first pass tells about the rows."""

    count: int
    separable: bool  # Whether no label has less than its row's largest logit.
    spread: float  # Root mean square of logit - largest logit of the row.
    slope: float  # Mean slope of the likelihood at b = 0,
    curvature: float  # and its mean curvature there.


def overview(rows):
    """Checks the values of all rows and returns their `Overview`."""

    def block(logits, labels, start):
        check_block(logits, start, from_logits=True, name="logits")
        shifted = tempered.shift(logits)
        of_label = shifted[np.arange(len(labels)), labels].astype(np.float64)
        mean = np.einsum("ij->i", shifted).astype(np.float64) / rows.num_classes
        square = np.einsum("ij,ij->i", shifted, shifted).astype(np.float64)
        square /= rows.num_classes
        return (
            len(labels),
            np.count_nonzero(of_label),
            np.sum(square),
            np.sum(mean - of_label),
            np.sum(square - mean**2),
        )

    count, wrong, square, slope, curvature = np.sum(rows.map(block), axis=0)
    if not np.isfinite(square):
        raise ValueError(
            "`logits` must not differ by more than the square root of the "
            f"largest number of their type. Received: squares up to {square}"
        )
    return Overview(
        int(count),
        wrong == 0,
        math.sqrt(square / count),
        slope / count,
        curvature / count,
    )


def without_optimum(rows, view):
    """An inverse temperature for data that determine none, or None.

    Warns and returns a finite value if every logit of a row is the same, or if
    no example is misclassified: then the best temperature would be 0.
    """
    if view.spread == 0:
        _warn("All logits of each row are equal", 1.0)
        return 1.0
    if view.separable:
        inverse = _succession(rows, view)
        _warn("No example is misclassified, so that 0 would be best", inverse)
        return inverse
    return None


def fit(rows, view):
    """The inverse temperature of the smallest likelihood."""
    inverse = without_optimum(rows, view)
    if inverse is not None:
        return inverse
    if view.slope >= 0:
        # To three digits, the predictions are uniform.
        inverse = 1e-3 / view.spread
        _warn("The logits say nothing about the labels", inverse)
        return inverse
    inverse = newton(rows, start(rows, view), view)
    if inverse >= HIGHEST / view.spread:
        _warn("The data are all but free of misclassifications", inverse)
    return inverse


def start(rows, view):
    """A good first guess, from a sample of the rows."""
    guess = abs(view.slope) / view.curvature if view.curvature else 1.0
    guess = guess or 1.0 / view.spread
    sample = rows.sample(SAMPLE_ROWS)
    if sample is rows:
        return guess
    inverse = newton(sample, guess, view, tolerance=1e-2)
    lowest, highest = LOWEST / view.spread, HIGHEST / view.spread
    return inverse if 10 * lowest < inverse < highest / 10 else guess


def newton(rows, inverse, view, tolerance=TOLERANCE):
    """The root of the likelihood's slope, from a starting point."""
    low = math.log(LOWEST / view.spread)
    high = math.log(HIGHEST / view.spread)
    position = min(max(math.log(inverse), low), high)
    for _ in range(MAX_STEPS):
        inverse = math.exp(position)
        totals = tempered.likelihood(rows, inverse)
        if totals.slope < 0:
            low = position
        else:
            high = position
        change = inverse * totals.curvature
        # Without curvature the step is long, and the bracket limits it.
        step = -totals.slope / change if change > 0 else math.inf
        step = math.copysign(min(abs(step), 2.0), -totals.slope)
        if low <= position + step <= high:
            position += step
        else:
            step = (low + high) / 2 - position
            position += step
        if abs(step) < tolerance:
            break
    return math.exp(position)


def _succession(rows, view):
    """Where the mean confidence is (n + 1) / (n + 2).

    This is Laplace's rule of succession: the probability that the next one of
    the same kind is right as well, after n that were.
    """
    target = (view.count + 1) / (view.count + 2)

    def excess(position):
        nodes = tempered.evaluate_nodes(rows, [math.exp(position)])
        return np.mean(np.exp(-nodes.log_sum)) - target

    low = math.log(LOWEST / view.spread)
    high = math.log(HIGHEST / view.spread)
    # Ties keep confidences below 1 at any temperature.
    if excess(high) < 0:
        return math.exp(high)
    return math.exp(brentq(excess, low, high, xtol=1e-6))


def _warn(reason, inverse):
    warnings.warn(
        f"{reason}: these data determine no temperature. "
        f"Using {1 / inverse:g}.",
        stacklevel=5,
    )
