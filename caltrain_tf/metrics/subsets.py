"""A metric on subsets of the examples: resamples for intervals, and groups."""

import dataclasses
from typing import NamedTuple

import numpy as np

from caltrain_tf import checks, inputs
from caltrain_tf.metrics import binned, scores, selective, unbinned

# Metrics of the predicted class, at most 1, and means of a value per example:
# both read the predictions once, not once per resample.
OF_TOP_LABELS = (
    binned.calibration_error,
    binned.mean_sweep_calibration_error,
    unbinned.ks_error,
    unbinned.mmce,
    unbinned.smooth_calibration_error,
    scores.accuracy,
    selective.aurc,
    selective.coverage_at_risk,
)
OF_EXAMPLES = {
    scores.average_uncertainty: scores.entropy_of_examples,
    scores.brier_score: scores.brier_of_examples,
    scores.negative_log_likelihood: scores.nll_of_examples,
}
# Metrics whose higher values are better.
RISING = (scores.accuracy, selective.coverage_at_risk)


def on_rows(metric, options, examples):
    """Returns a function of indices: the metric of a part of the examples."""
    if not callable(metric):
        raise ValueError(
            f"`metric` must be a function. Received: metric={metric!r}"
        )
    weight = examples.weight
    if metric in OF_TOP_LABELS:
        outcomes = inputs.top_labels(examples, None)
        return lambda rows: metric(outcomes.rows(rows), None, **options)
    if metric in OF_EXAMPLES and not options:
        values = inputs.Outcomes(OF_EXAMPLES[metric](examples), None, weight)
        return lambda rows: scores.mean(*values.rows(rows)[::2])
    probs, labels = examples.whole()
    if examples.from_logits:
        options = {**options, "from_logits": True}

    def of_rows(rows):
        weights = {} if weight is None else {"sample_weight": weight[rows]}
        value = metric(probs[rows], labels[rows], **options, **weights)
        if np.ndim(value) != 0:
            raise ValueError(
                "`metric` must return a number. Received: "
                f"metric={metric!r}, which returned {type(value).__name__}"
            )
        return float(value)

    return of_rows


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
    weight. The interval mirrors the quantiles of the resampled values at the
    metric's value (the basic bootstrap), which removes the bias of binned
    errors on few examples. It is widened to the value where that lies outside,
    and cut to at least 0, and at most 1 for metrics that are at most 1.

    Args:
        metric: An exact metric of this package, or any function
            `metric(probs, labels, **options)` of two-dimensional `probs` that
            is never negative. It gets `from_logits` and `sample_weight` if
            they are given here.
        probs, labels: As in `calibration_error`.
        num_samples: Number of resamples.
        level: Coverage of the interval.
        seed: Seed of the resampling.
        from_logits, multi_label, ignore_class, sample_weight: Likewise.
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
    num_samples = checks.count("num_samples", num_samples)
    level = checks.number("level", level, low=0, high=1)
    seed = checks.count("seed", seed, low=0)
    shared = from_logits, multi_label, ignore_class, sample_weight
    examples = inputs.read(probs, labels, *shared)
    of_sample = on_rows(metric, options, examples)
    value = of_sample(slice(None))
    generator, size = np.random.default_rng(seed), len(examples.labels)
    resampled = [
        of_sample(generator.integers(size, size=size))
        for _ in range(num_samples)
    ]
    tail = (1 - level) / 2
    mirrored = 2 * value - np.quantile(resampled, [1 - tail, tail])
    largest = 1.0 if metric in OF_TOP_LABELS else np.inf
    low, high = np.clip(mirrored, 0, largest)
    # `fmin` keeps the interval where the value is NaN.
    interval = float(np.fmin(low, value)), float(np.fmax(high, value))
    return BootstrapResult(value, interval)


@dataclasses.dataclass(frozen=True)
class GroupTable:
    """The result of `groupwise`. Prints as a table."""

    metric: str
    values: dict
    counts: dict
    overall: float
    worst_group: object
    worst: float
    gap: float

    def __str__(self):
        """The table, one row per group."""
        worst, counts = self.worst_group, self.counts
        rows = [(group_text(g), counts[g], v) for g, v in self.values.items()]
        rows += [
            ("overall", sum(counts.values()), self.overall),
            (f"worst: {group_text(worst)}", counts[worst], self.worst),
            ("gap", "", self.gap),
        ]
        cells = [("group", "count", self.metric)]
        cells += [(name, str(count), f"{x:.4f}") for name, count, x in rows]
        a, b, c = (max(map(len, column)) for column in zip(*cells, strict=True))
        lines = [f"{x:<{a}}  {y:>{b}}  {z:>{c}}" for x, y, z in cells]
        lines.insert(-3, "-" * len(lines[0]))
        return "\n".join(lines)


def groupwise(
    metric,
    probs,
    labels,
    groups,
    *,
    from_logits=False,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
    **options,
):
    """A metric for each group of examples, with the worst group and the gap.

    Binned errors of small groups are larger by chance alone; `bootstrap` on a
    group's examples shows by how much.

    Args:
        metric: As in `bootstrap`; it may be negative.
        probs, labels: As in `calibration_error`.
        groups: The group of each example: an array of shape `(...)`, or of its
            first axes, or a list of numbers, strings or any hashable objects,
            such as tuples of several attributes. Groups without an example that
            counts are left out.
        from_logits, multi_label, ignore_class, sample_weight: Likewise.
        **options: Options of the metric.

    Returns:
        A `GroupTable`: `values` and `counts` are dictionaries by group, sorted
        if groups can be sorted; `overall` is the metric of all examples;
        `worst` is the value of `worst_group`: the largest one, or for
        `accuracy` and `coverage_at_risk` the smallest; `gap` is the largest
        minus the smallest value; `metric` is the metric's name.

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]]
        >>> table = ct.metrics.groupwise(
        ...     ct.metrics.accuracy, probs, [0, 0, 1, 0], ["a", "b", "a", "b"])
        >>> table.values
        {'a': 1.0, 'b': 0.5}
        >>> print(table)
        group     count  accuracy
        a             2    1.0000
        b             2    0.5000
        -------------------------
        overall       4    0.7500
        worst: b      2    0.5000
        gap                0.5000
    """
    shared = from_logits, multi_label, ignore_class, sample_weight
    examples = inputs.read(probs, labels, *shared)
    of_rows = on_rows(metric, options, examples)
    rows = rows_of_groups(examples, groups)
    values = [of_rows(index) for index in rows.values()]
    worst = int((np.argmin if metric in RISING else np.argmax)(values))
    return GroupTable(
        metric=getattr(metric, "__name__", type(metric).__name__),
        values=dict(zip(rows, values, strict=True)),
        counts={group: len(index) for group, index in rows.items()},
        overall=of_rows(slice(None)),
        worst_group=list(rows)[worst],
        worst=values[worst],
        gap=float(np.ptp(values)),
    )


def group_text(group):
    """A group as it is shown: the parts of a tuple one after the other."""
    parts = group if isinstance(group, tuple) else (group,)
    return ", ".join(map(str, parts))


def rows_of_groups(examples, groups):
    """A dictionary from groups to the indices of their examples that count."""
    if isinstance(groups, list | tuple):
        # NumPy would turn numbers among strings into strings, tuples into rows.
        groups = np.fromiter(groups, object, len(groups))
    if not hasattr(groups, "__array__"):
        raise ValueError(
            "`groups` must hold the group of each example. "
            f"Received: groups={groups!r}"
        )
    groups = np.asarray(groups)
    groups = inputs.flatten_weight(np, "groups", groups, examples.shape)
    groups = groups[examples.counts]
    rows = {}
    try:
        for row, group in enumerate(groups.tolist()):
            rows.setdefault(group, []).append(row)
    except TypeError as error:
        message = f"`groups` must hold hashable objects: {error}"
        raise ValueError(message) from error
    if any(group != group for group in rows):
        raise ValueError("`groups` must not hold NaN. Received: NaN")
    try:
        names = sorted(rows)
    except TypeError:  # Objects of different kinds keep their order.
        names = list(rows)
    return {name: np.array(rows[name]) for name in names}
