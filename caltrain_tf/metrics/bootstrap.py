"""Confidence intervals for the exact metrics."""

import inspect
from typing import NamedTuple

import numpy as np

from caltrain_tf import checks
from caltrain_tf.inputs import read, top_labels
from caltrain_tf.metrics import binned, scores, selective, unbinned
from caltrain_tf.metrics.marginal import marginal_calibration_error


def _accuracy_of_confidence(confidence, correct, weight=None):
    return float(np.average(correct, weights=weight))


# Metrics that need only confidences and correctness, and metrics that are means
# of a value per example: both read the predictions once, not once per resample.
OF_CONFIDENCE = {
    binned.calibration_error: binned.error_of_confidence,
    binned.mean_sweep_calibration_error: binned.sweep_of_confidence,
    unbinned.ks_error: unbinned.ks_of_confidence,
    unbinned.mmce: unbinned.mmce_of_confidence,
    unbinned.smooth_calibration_error: unbinned.smooth_of_confidence,
    scores.accuracy: _accuracy_of_confidence,
    selective.aurc: selective.aurc_of_confidence,
    selective.coverage_at_risk: selective.coverage_of_confidence,
}
OF_EXAMPLES = {
    scores.average_uncertainty: scores.entropy_of_examples,
    scores.brier_score: scores.brier_of_examples,
    scores.negative_log_likelihood: scores.nll_of_examples,
}
# The largest value of each metric; the smallest is 0. Missing metrics have no
# bound, or one that depends on the number of classes.
LARGEST_VALUES = dict.fromkeys(
    [*OF_CONFIDENCE, marginal_calibration_error], 1.0
)
LARGEST_VALUES[scores.brier_score] = 2.0


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
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
    **options,
):
    """A metric with its bootstrap confidence interval.

    The examples are drawn with replacement `num_samples` times, each with its
    weight. The `"basic"` interval mirrors the quantiles of the resampled values
    at the metric's value, which removes the bias that resampling adds: binned
    errors of resamples are larger than that of the sample, so that a plain
    `"percentile"` interval of a well calibrated network lies above the value
    itself. Mirrored ends that the metric cannot reach, such as an accuracy
    above 1, are moved to the nearest possible value.

    Args:
        metric: An exact metric of this package, or any function
            `metric(probs, labels, **options)` of two-dimensional `probs` that
            is never negative. It gets `from_logits` and `sample_weight` if
            they are given here.
        probs: Probabilities, or logits, `(..., K)`; `(N,)` or `(..., 1)` for
            class 1 of a binary problem.
        labels: Class ids `(...)`, or one-hot rows `(..., K)`.
        num_samples: Number of resamples.
        level: Coverage of the interval.
        method: `"basic"` or `"percentile"`.
        seed: Seed of the resampling.
        from_logits: Whether `probs` holds logits.
        multi_label: Whether the columns are binary problems, to be pooled.
        ignore_class: The label of examples that are ignored.
        sample_weight: Weights of shape `(...)`, or of its first axes.
        **options: Options of the metric.

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
    num_samples = checks.count("num_samples", num_samples)
    level = checks.number("level", level, low=0, high=1)
    method = checks.choice("method", method, ("basic", "percentile"))
    seed = checks.count("seed", seed, low=0)
    inputs = (
        probs,
        labels,
        from_logits,
        multi_label,
        ignore_class,
        sample_weight,
    )
    num_examples, of_sample = on_rows(metric, inputs, options)
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


def on_rows(metric, inputs, options):
    """Turns a metric into a function of a subset of the examples.

    Args:
        metric: As in `bootstrap`.
        inputs: The arguments of `inputs.read`, as a tuple.
        options: Options of the metric, as a dictionary.

    Returns:
        The number of examples that count, and a function that takes an index of
        them and returns the metric of the chosen examples, a float.
    """
    if metric in OF_CONFIDENCE or metric in OF_EXAMPLES:
        unknown = set(options) - set(inspect.signature(metric).parameters)
        if unknown:
            raise ValueError(
                f"`options` must be options of {metric.__name__}. "
                f"Received: {', '.join(sorted(unknown))}"
            )
    if metric in OF_CONFIDENCE:
        of_confidence = OF_CONFIDENCE[metric]
        *arrays, weight = top_labels(*inputs)

        def of_sample(rows):
            if weight is not None:
                options["weight"] = weight[rows]
            return of_confidence(*(array[rows] for array in arrays), **options)

        return len(arrays[0]), of_sample
    examples = read(*inputs)
    weight = examples.weight
    if metric in OF_EXAMPLES:
        values = OF_EXAMPLES[metric](examples, **options)
        weights = np.ones(len(values)) if weight is None else weight
        return len(values), lambda rows: float(
            np.average(values[rows], weights=weights[rows])
        )
    probs, labels = examples.whole()
    if examples.from_logits:
        options = {**options, "from_logits": True}

    def of_any_sample(rows):
        if weight is not None:
            options["sample_weight"] = weight[rows]
        value = metric(probs[rows], labels[rows], **options)
        if np.ndim(value) != 0:
            raise ValueError(
                "`metric` must return a number. Received: "
                f"metric={metric!r}, which returned {type(value).__name__}"
            )
        return float(value)

    return len(labels), of_any_sample
