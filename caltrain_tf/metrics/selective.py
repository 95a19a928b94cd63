"""Selective prediction: the errors of a network that may abstain."""

from typing import NamedTuple

import numpy as np
from scipy.special import digamma

from caltrain_tf import checks, inputs
from caltrain_tf.metrics import binned


class RiskCoverageCurve(NamedTuple):
    """Arrays `(points,)`, from the smallest coverage to 1."""

    coverage: np.ndarray
    risk: np.ndarray
    threshold: np.ndarray


def risk_coverage_curve(
    probs,
    labels,
    *,
    from_logits=False,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
):
    """Risk and coverage of answering above a threshold, for every threshold.

    The coverage is the share of the examples that are answered, and the risk
    the share of these answers that are wrong.

    Args:
        probs, labels, from_logits, multi_label, ignore_class, sample_weight: As
            in `calibration_error`.

    Returns:
        A named tuple of arrays `coverage`, `risk` and `threshold`, with one
        entry per distinct confidence, the largest first.

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]]
        >>> curve = ct.metrics.risk_coverage_curve(probs, [0, 1, 1, 1])
        >>> curve.coverage.tolist(), curve.risk.round(3).tolist()
        ([0.25, 0.5, 0.75, 1.0], [0.0, 0.5, 0.333, 0.25])

    Reference:
        El-Yaniv and Wiener, "On the Foundations of Noise-free Selective
        Classification", 2010.
    """
    shared = from_logits, multi_label, ignore_class, sample_weight
    outcomes = inputs.top_labels(probs, labels, *shared)
    threshold, mass, errors = _accumulate(outcomes)
    return RiskCoverageCurve(mass / mass[-1], errors / mass, threshold)


def aurc(
    probs,
    labels,
    *,
    from_logits=False,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
):
    """Area under the risk-coverage curve; lower is better.

    With r_k the risk of the k most confident of N examples, it is the area
    under r from coverage 1/N to 1 by the trapezoidal rule, divided by the width
    of that interval:

        1/(N - 1) sum_{k=1}^{N-1} (r_k + r_{k+1}) / 2

    The result is the mean over all orders of examples of equal confidence. For
    a single example it is the risk. Without ties it equals `AURC` of
    torch-uncertainty.

    Args:
        probs, labels, from_logits, multi_label, ignore_class, sample_weight: As
            in `calibration_error`.

    Returns:
        A float in [0, 1].

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.7, 0.3], [0.6, 0.4], [0.8, 0.2]]
        >>> ct.metrics.aurc(probs, [0, 1, 0])
        0.0833

    Reference:
        Geifman and El-Yaniv, "Selective Classification for Deep Neural
        Networks", 2017.
    """
    shared = from_logits, multi_label, ignore_class, sample_weight
    outcomes = inputs.top_labels(probs, labels, *shared)
    _, mass, errors = _accumulate(outcomes)
    total, wrong = mass[-1], errors[-1]
    if total == 1:
        return float(wrong)
    mass_before = np.concatenate([[0.0], mass[:-1]])
    errors_before = np.concatenate([[0.0], errors[:-1]])
    # Over all orders, each example among ties is wrong with probability `rate`:
    # r_k = (errors_before + (k - mass_before) rate) / k. Its sum over the ties
    # needs the sum of 1/k, a difference of the digamma function.
    # A weight that is lost beside the others counts nothing.
    ties = mass - mass_before
    rate = (errors - errors_before) / np.where(ties > 0, ties, 1.0)
    harmonic = np.diff(digamma(np.concatenate([[1.0], mass + 1])))
    risks = wrong + (errors_before - mass_before * rate) @ harmonic
    area = (risks - (rate[0] + wrong / total) / 2) / (total - 1)
    return float(np.clip(area, 0, 1))


def coverage_at_risk(
    probs,
    labels,
    risk=0.05,
    *,
    from_logits=False,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
):
    """Largest coverage whose risk is at most `risk`; higher is better.

    The most confident examples are answered first, and those of equal
    confidence together. Without ties it equals `CovAtxRisk` of
    torch-uncertainty.

    Args:
        probs, labels: As in `calibration_error`.
        risk: The share of wrong answers that is allowed, in [0, 1].
        from_logits, multi_label, ignore_class, sample_weight: Likewise.

    Returns:
        A float in (0, 1], or NaN where every threshold has a larger risk.

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.9, 0.1], [0.6, 0.4], [0.8, 0.2], [0.5, 0.5], [0.7, 0.3]]
        >>> ct.metrics.coverage_at_risk(probs, [0, 1, 0, 1, 0], risk=0.3)
        0.8

    Reference:
        Geifman and El-Yaniv, "Selective Classification for Deep Neural
        Networks", 2017.
    """
    risk = checks.number("risk", risk, low=0, high=1, closed=True)
    shared = from_logits, multi_label, ignore_class, sample_weight
    outcomes = inputs.top_labels(probs, labels, *shared)
    curve = risk_coverage_curve(outcomes, None)
    allowed = curve.coverage[curve.risk <= risk]
    return float(allowed[-1]) if len(allowed) else float("nan")


def _accumulate(outcomes):
    """Each confidence, the largest first, and mass and errors up to it."""
    arrays = binned.sort_together(*outcomes)
    confidence, correct, weight = (array[::-1] for array in arrays)
    weight = binned.in_units(weight)
    mass = np.cumsum(weight)
    errors = np.cumsum(weight * ~correct)
    last = np.append(np.flatnonzero(np.diff(confidence)), len(confidence) - 1)
    return confidence[last], mass[last], errors[last]
