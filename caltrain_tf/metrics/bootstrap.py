"""Confidence intervals for the exact metrics."""

from typing import NamedTuple

import numpy as np

from caltrain_tf.checks import check_choice
from caltrain_tf.checks import check_count
from caltrain_tf.checks import check_number
from caltrain_tf.metrics.accuracy import accuracy
from caltrain_tf.metrics.average_uncertainty import average_uncertainty
from caltrain_tf.metrics.average_uncertainty import entropy_of_rows
from caltrain_tf.metrics.brier_score import brier_of_rows
from caltrain_tf.metrics.brier_score import brier_score
from caltrain_tf.metrics.calibration_error import calibration_error
from caltrain_tf.metrics.calibration_error import error_of_confidence
from caltrain_tf.metrics.inputs import check_predictions
from caltrain_tf.metrics.ks_error import ks_error
from caltrain_tf.metrics.ks_error import ks_of_confidence
from caltrain_tf.metrics.marginal_calibration_error import (
    marginal_calibration_error,
)
from caltrain_tf.metrics.mean_sweep_calibration_error import (
    mean_sweep_calibration_error,
)
from caltrain_tf.metrics.mean_sweep_calibration_error import sweep_of_confidence
from caltrain_tf.metrics.mmce import mmce
from caltrain_tf.metrics.mmce import mmce_of_confidence
from caltrain_tf.metrics.negative_log_likelihood import negative_log_likelihood
from caltrain_tf.metrics.negative_log_likelihood import nll_of_rows
from caltrain_tf.metrics.smooth_calibration_error import (
    smooth_calibration_error,
)
from caltrain_tf.metrics.smooth_calibration_error import smooth_of_confidence
from caltrain_tf.metrics.top_label import top_label

# Metrics that need only confidences and correctness, and means of a value of
# each example: the predictions are read once, not once a resample.
OF_CONFIDENCE = {
    calibration_error: error_of_confidence,
    ks_error: ks_of_confidence,
    mean_sweep_calibration_error: sweep_of_confidence,
    mmce: mmce_of_confidence,
    smooth_calibration_error: smooth_of_confidence,
    accuracy: lambda confidence, correct: float(correct.mean()),
}
OF_ROWS = {
    average_uncertainty: entropy_of_rows,
    brier_score: brier_of_rows,
    negative_log_likelihood: nll_of_rows,
}


# The largest value of each metric; the smallest is 0. Those that are missing
# have no bound, or one that depends on the number of classes.
LARGEST_VALUES = dict.fromkeys(
    [*OF_CONFIDENCE, marginal_calibration_error], 1.0
)
LARGEST_VALUES[brier_score] = 2.0


class BootstrapResult(NamedTuple):
    """A metric's value and the two ends of its interval."""

    value: float
    interval: tuple


def bootstrap(
    metric,
    probs,
    labels,
    num_samples=1000,
    level=0.95,
    method="basic",
    seed=0,
    *,
    from_logits=False,
    **options,
):
    """A metric with its bootstrap confidence interval.

    The examples are drawn anew with replacement `num_samples` times. The
    `"basic"` interval mirrors the quantiles of the resampled values at the
    value itself, which takes out the bias that resampling adds: binned errors
    of resamples are larger than that of the sample, so that a plain
    `"percentile"` interval of a well calibrated network lies above its own
    value. Mirrored ends that no value can have, such as an accuracy above 1,
    are moved to the nearest one that it can.

    Args:
        metric: An exact metric of this package, or any function
            `metric(probs, labels, **options)` that is never negative.
        probs: Probabilities, or logits, `(N, K)`.
        labels: Class ids `(N,)`, or one-hot rows `(N, K)`.
        num_samples: How often to resample.
        level: The interval's coverage.
        method: `"basic"` or `"percentile"`.
        seed: Of the resampling.
        from_logits: Whether `probs` holds logits.
        **options: For the metric.

    Returns:
        A named tuple of the `value` on all examples and the `interval`, a tuple
        of its low and its high end.

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]] * 25
        >>> labels = [0, 0, 1, 0] * 25
        >>> value, (low, high) = ct.metrics.bootstrap(
        ...     ct.metrics.accuracy, probs, labels)
        >>> value, low <= value <= high
        (0.75, True)
    """
    if not callable(metric):
        raise ValueError(
            f"`metric` must be a function. Received: metric={metric!r}"
        )
    num_samples = check_count("num_samples", num_samples)
    level = check_number("level", level, low=0, high=1)
    method = check_choice("method", method, ("basic", "percentile"))
    seed = check_count("seed", seed, low=0)
    of_sample = _resampler(metric, probs, labels, from_logits, options)
    num_examples = np.shape(labels)[0]
    value = of_sample(slice(None))
    generator = np.random.default_rng(seed)
    resampled = [
        of_sample(generator.integers(num_examples, size=num_examples))
        for _ in range(num_samples)
    ]
    tail = (1 - level) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail])
    if method == "basic":
        mirrored = [2 * value - high, 2 * value - low]
        low, high = np.clip(mirrored, 0, LARGEST_VALUES.get(metric, np.inf))
    return BootstrapResult(value, (float(low), float(high)))


def _resampler(metric, probs, labels, from_logits, options):
    """A function of row indices that gives the metric of those rows."""
    if metric in OF_CONFIDENCE:
        of_confidence = OF_CONFIDENCE[metric]
        confidence, correct = top_label(probs, labels, from_logits)
        return lambda rows: of_confidence(
            confidence[rows], correct[rows], **options
        )
    if metric in OF_ROWS:
        values = OF_ROWS[metric](probs, labels, from_logits, **options)
        return lambda rows: float(values[rows].mean())
    probs, labels = check_predictions(probs, labels, from_logits)
    if from_logits:
        options = {**options, "from_logits": True}
    return lambda rows: float(metric(probs[rows], labels[rows], **options))
