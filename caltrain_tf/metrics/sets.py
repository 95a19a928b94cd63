"""Prediction sets: how often they hold the label, and how large they are."""

import numpy as np

from caltrain_tf import checks, inputs
from caltrain_tf.metrics import scores


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
    examples = _read(sets, labels, ignore_class, sample_weight)
    (held,) = examples.map(lambda sets, ids: (inputs.at_class(sets, ids) > 0,))
    return scores.mean(held, examples.weight)


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
    examples = _read(sets, None, None, sample_weight, needs_labels=False)
    (sizes,) = examples.map(lambda sets, _: ((sets > 0).sum(axis=1),))
    return scores.mean(sizes, examples.weight)


def _read(sets, labels, ignore_class, sample_weight, **options):
    """`inputs.Examples` with 1 for classes in the set and -1 for others."""
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
    # As logits, since they do not sum to 1.
    logits = np.where(is_set, np.float32(1), np.float32(-1))
    shared = True, False, ignore_class, sample_weight, "sets"
    return inputs.read(logits, labels, *shared, **options)
