"""A metric for each group of examples, such as protected groups."""

import dataclasses

import numpy as np

from caltrain_tf import checks
from caltrain_tf.inputs import read
from caltrain_tf.metrics.bootstrap import on_rows
from caltrain_tf.metrics.scores import accuracy
from caltrain_tf.metrics.selective import coverage_at_risk

# Metrics whose higher values are better.
RISING = (accuracy, coverage_at_risk)


@dataclasses.dataclass(frozen=True)
class GroupTable:
    """A metric by group. Prints as a table.

    Attributes:
        metric: The metric's name.
        values: Dictionary from groups to values of the metric.
        counts: Dictionary from groups to the number of examples that count.
        overall: The metric of all examples together.
        higher_is_better: Whether the smallest value is the worst, instead of
            the largest.
    """

    metric: str
    values: dict
    counts: dict
    overall: float
    higher_is_better: bool = False

    @property
    def worst(self):
        """The worst value of a group; NaN if one is NaN."""
        return self.values[self.worst_group]

    @property
    def worst_group(self):
        """The group with the worst value; the first such group."""
        values = list(self.values.values())
        index = (
            np.argmin(values) if self.higher_is_better else np.argmax(values)
        )
        return list(self.values)[index]

    @property
    def gap(self):
        """The largest value of a group minus the smallest."""
        return float(np.ptp(list(self.values.values())))

    def __str__(self):
        """The table, one row per group."""
        total = sum(self.counts.values())
        rows = [("group", "count", self.metric)]
        rows += [
            (group_text(group), str(self.counts[group]), f"{value:.4f}")
            for group, value in self.values.items()
        ]
        worst = self.worst_group
        rows += [
            ("overall", str(total), f"{self.overall:.4f}"),
            (
                f"worst: {group_text(worst)}",
                str(self.counts[worst]),
                f"{self.worst:.4f}",
            ),
            ("gap", "", f"{self.gap:.4f}"),
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            f"{row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  "
            f"{row[2]:>{widths[2]}}"
            for row in rows
        ]
        lines.insert(-3, "-" * len(lines[0]))
        return "\n".join(lines)


def groupwise(
    metric,
    probs,
    labels,
    groups,
    *,
    higher_is_better=None,
    from_logits=False,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
    **options,
):
    """A metric for each group of examples, with the worst group and the gap.

    A network that is calibrated on the whole may be over-confident for one
    group and under-confident for another. Binned errors of small groups are
    larger by chance alone; `bootstrap` on a group's examples shows by how much.

    Args:
        metric: An exact metric of this package that returns a number, or any
            function `metric(probs, labels, **options)` of two-dimensional
            `probs`. It gets `from_logits` and `sample_weight` if they are given
            here.
        probs: Probabilities, or logits, `(..., K)`; `(N,)` or `(..., 1)` for
            class 1 of a binary problem.
        labels: Class ids `(...)`, or one-hot rows `(..., K)`.
        groups: The group of each example, of shape `(...)`, or of its first
            axes: numbers, strings or any hashable objects, such as tuples of
            several attributes. Groups without an example that counts are left
            out.
        higher_is_better: Whether the smallest value is the worst. By default
            True for `accuracy` and `coverage_at_risk` only.
        from_logits: Whether `probs` holds logits.
        multi_label: Whether the columns are binary problems, to be pooled.
        ignore_class: The label of examples that are ignored.
        sample_weight: Weights of shape `(...)`, or of its first axes.
        **options: Options of the metric.

    Returns:
        A `GroupTable`: `values` and `counts` are dictionaries by group, sorted
        if groups can be sorted; `overall` is the metric of all examples;
        `worst` is the worst value, that of `worst_group`; and `gap` is the
        difference of the largest and the smallest value. It prints as a table.

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
    if not callable(metric):
        raise ValueError(
            f"`metric` must be a function. Received: metric={metric!r}"
        )
    if higher_is_better is None:
        higher_is_better = metric in RISING
    checks.flag("higher_is_better", higher_is_better)
    inputs = (
        probs,
        labels,
        from_logits,
        multi_label,
        ignore_class,
        sample_weight,
    )
    rows = rows_of_groups(read(*inputs), groups)
    _, of_rows = on_rows(metric, inputs, options)
    return GroupTable(
        metric=getattr(metric, "__name__", type(metric).__name__),
        values={group: of_rows(index) for group, index in rows.items()},
        counts={group: len(index) for group, index in rows.items()},
        overall=of_rows(slice(None)),
        higher_is_better=higher_is_better,
    )


def group_text(group):
    """A group as it is shown: the parts of a tuple one after the other."""
    return (
        ", ".join(map(str, group)) if isinstance(group, tuple) else str(group)
    )


def rows_of_groups(examples, groups):
    """Which of the examples that count belong to each group.

    Args:
        examples: `Examples` from `inputs.read`.
        groups: As in `groupwise`.

    Returns:
        A dictionary from groups to indices into the examples that count,
        without empty groups.
    """
    names, codes = _codes(groups, examples.shape)
    if examples.counts is not None:
        codes = codes[examples.counts]
    order = np.argsort(codes, kind="stable")
    sizes = np.bincount(codes, minlength=len(names))
    parts = np.split(order, np.cumsum(sizes)[:-1])
    return {
        name: part for name, part in zip(names, parts, strict=True) if len(part)
    }


def _codes(groups, shape):
    """The groups' names, and the number of each example's group `(n,)`."""
    array = _as_objects(groups)
    if array.shape == (*shape, 1):
        array = array[..., 0]
    if array.ndim == 0 or array.shape != shape[: array.ndim]:
        raise ValueError(
            f"`groups` must have the shape of the examples, {shape}, or of "
            f"their first axes. Received: groups.shape={array.shape}"
        )
    if array.dtype.kind == "O":
        names, codes = _codes_of_objects(array.ravel())
    else:
        names, codes = np.unique(array, return_inverse=True)
        names = names.tolist()
    if any(name != name for name in names):
        raise ValueError("`groups` must not hold NaN. Received: NaN")
    codes = codes.reshape(array.shape + (1,) * (len(shape) - array.ndim))
    return names, np.broadcast_to(codes, shape).reshape(-1)


def _as_objects(groups):
    """Groups as an array, of objects unless all are of one kind."""
    if isinstance(groups, (str, bytes, dict)) or not (
        hasattr(groups, "__array__") or hasattr(groups, "__len__")
    ):
        raise ValueError(
            "`groups` must hold the group of each example. "
            f"Received: groups={groups!r}"
        )
    if hasattr(groups, "detach"):
        groups = groups.detach().cpu()
    if hasattr(groups, "__array__"):
        return np.asarray(groups)
    groups = list(groups)
    kinds = {type(group) for group in groups}
    if len(kinds) == 1 and not issubclass(kinds.pop(), tuple):
        try:
            array = np.asarray(groups)
        except ValueError as error:
            raise ValueError(f"`groups` must be an array: {error}") from error
        if array.dtype.kind != "O":
            return array
    # NumPy would turn numbers among strings into strings, and tuples into rows.
    return np.fromiter(groups, object, len(groups))


def _codes_of_objects(objects):
    numbers = {}
    try:
        codes = [numbers.setdefault(each, len(numbers)) for each in objects]
    except TypeError as error:
        raise ValueError(
            f"`groups` must hold hashable objects: {error}"
        ) from error
    names, codes = list(numbers), np.array(codes)
    try:
        order = sorted(range(len(names)), key=names.__getitem__)
    except TypeError:
        return names, codes
    return [names[index] for index in order], np.argsort(order)[codes]
