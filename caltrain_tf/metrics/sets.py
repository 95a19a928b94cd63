"""Prediction sets: how often they hold the label, and how large they are."""

import numpy as np

from caltrain_tf import checks, inputs


def coverage(sets, labels, *, ignore_class=None, sample_weight=None):
    """Share of the examples whose prediction set holds the label.

    Args:
        sets: Booleans, or ones and zeros, `(..., K)`: which classes are in the
            set of an example, as `ct.posthoc.ConformalSets` returns them.
        labels: Class ids `(...)`, or one-hot rows `(..., K)`.
        ignore_class: The label of examples that are ignored.
        sample_weight: Weights of shape `(...)`, or of its first axes.

    Returns:
        A float in [0, 1].

    Example:
        >>> import caltrain_tf as ct
        >>> ct.metrics.coverage([[1, 1, 0], [0, 0, 1]], [1, 0])
        0.5
    """
    sets = _read(sets)
    *shape, num_classes = sets.shape
    ignore_class = checks.ignore_class(ignore_class)
    ids, counts = inputs.read_labels(
        labels, tuple(shape), num_classes, ignore_class
    )
    ids = ids if counts is None else np.where(counts, ids, 0)
    held = inputs.at_class(sets.reshape(-1, num_classes), ids)
    return _mean(held, tuple(shape), sample_weight, counts)


def set_size(sets, *, sample_weight=None):
    """Mean number of classes in a prediction set.

    Args:
        sets: Booleans, or ones and zeros, `(..., K)`; see `coverage`.
        sample_weight: Weights of shape `(...)`, or of its first axes.

    Returns:
        A float in [0, K].

    Example:
        >>> import caltrain_tf as ct
        >>> ct.metrics.set_size([[1, 1, 0], [0, 0, 1]])
        1.5
    """
    sets = _read(sets)
    shape = sets.shape[:-1]
    return _mean(np.sum(sets, axis=-1).ravel(), shape, sample_weight)


def _read(sets):
    """`sets` as booleans `(..., K)`."""
    sets = checks.as_array("sets", sets)
    if sets.ndim < 2 or sets.size == 0 or sets.shape[-1] < 2:
        raise ValueError(
            "`sets` must have the shape (..., classes), with at least one "
            f"example and 2 classes. Received: sets.shape={sets.shape}"
        )
    is_set = sets.astype(bool)
    if np.any(is_set != sets):
        wrong = sets[is_set != sets][0]
        raise ValueError(
            f"`sets` must hold True and False, or 1 and 0. Received: {wrong}"
        )
    return is_set


def _mean(values, shape, sample_weight, counts=None):
    """Weighted mean of values `(n,)` of examples of a shape."""
    weight = np.ones(len(values))
    if sample_weight is not None:
        weight = inputs.read_weight(sample_weight, shape)
        weight = weight / max(weight.max(), 1e-300)  # No sum overflows.
    if counts is not None:
        weight = weight * counts
    if not weight.any():
        raise ValueError(
            "`sample_weight` and `ignore_class` must leave an example that "
            f"counts. Received: {len(values)} examples, none of which does"
        )
    return float(np.average(values, weights=weight))
