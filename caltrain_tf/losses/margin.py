"""Penalties on logits that are further apart than a margin."""

import keras
from keras import ops

from caltrain_tf import checks, inputs
from caltrain_tf.losses import base

# Largest distance whose square, and sums of many squares, do not overflow
# float32. Larger ones are those of masked classes, which get no gradient.
_LARGEST_DISTANCE = 1e15


def mbls(
    y_true,
    y_pred,
    from_logits=False,
    *,
    margin=10.0,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
    cross_replica=False,
):
    """Penalty on logits that lie more than a margin below the largest one.

    mbls = mean over examples and classes of max(0, max_j z_j - z_k - margin)

    It takes logits only: pass `from_logits=True`. In the paper it is added to
    cross-entropy with beta = 0.1.

    Args:
        y_true, multi_label, ignore_class, sample_weight, cross_replica: As in
            `sb_ece`.
        y_pred: Logits `(..., classes)`; `(..., 1)` stands for [0, z].
        from_logits: Must be True.
        margin: The largest distance without a penalty, at least 0.

    Example:
        >>> import caltrain_tf as ct
        >>> logits = [[8.0, 1.0], [-2.0, 3.0], [0.0, 4.0]]
        >>> value = ct.losses.mbls([0, 1, 1], logits, True, margin=4.0)
        >>> round(float(value), 4)
        0.6667

    Reference:
        Liu et al., "The Devil is in the Margin: Margin-based Label Smoothing
        for Network Calibration", 2022.
    """
    from_logits = _check_logits(from_logits)
    margin = checks.number("margin", margin, low=0, closed=True)
    shared = multi_label, ignore_class, sample_weight, cross_replica
    batch = inputs.standardize(y_true, y_pred, from_logits, *shared)
    largest = ops.max(batch.predictions, axis=-1, keepdims=True)
    penalty = ops.relu(largest - batch.predictions - margin)
    return base.mean(ops.mean(penalty, axis=-1), batch)


@keras.saving.register_keras_serializable("caltrain_tf")
class MbLS(base.Loss):
    """`mbls` as a Keras loss; see there for the arguments."""

    function = staticmethod(mbls)

    def __init__(
        self,
        margin=10.0,
        from_logits=False,
        name="mbls",
        *,
        multi_label=False,
        ignore_class=None,
        reduction="sum_over_batch_size",
    ):
        _check_logits(from_logits)
        shared = from_logits, name, multi_label, ignore_class, reduction
        super().__init__(*shared)
        self.margin = checks.number("margin", margin, low=0, closed=True)


def acls(
    y_true,
    y_pred,
    from_logits=False,
    *,
    margin=10.0,
    positive=1.0,
    negative=0.1,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
    cross_replica=False,
):
    """Squared penalties on large logits and on those far below the largest.

    With z_max the largest logit of an example,

        acls = positive x mean_i max(0, z_max - margin)^2
             + negative x mean over examples and the other K - 1 classes of
               max(0, stop_gradient(z_max) - z_k - margin)^2

    It takes logits only: pass `from_logits=True`. In the paper it is added to
    cross-entropy with beta = 0.1. Where several classes share the largest
    logit, the authors' code adds the first term for each of them. Distances
    beyond 1e15, as those of masked classes, count as 1e15, without a gradient.

    Args:
        y_true, y_pred, from_logits: As in `mbls`.
        multi_label, ignore_class, sample_weight, cross_replica: Likewise.
        margin: The largest logit and distance without a penalty, at least 0.
        positive: Weight of the first term, at least 0.
        negative: Weight of the second term, at least 0.

    Example:
        >>> import caltrain_tf as ct
        >>> logits = [[8.0, 1.0], [-2.0, 3.0], [0.0, 4.0]]
        >>> value = ct.losses.acls([0, 1, 1], logits, True, margin=4.0)
        >>> round(float(value), 4)
        5.6667

    Reference:
        Park et al., "ACLS: Adaptive and Conditional Label Smoothing for
        Network Calibration", 2023.
    """
    from_logits = _check_logits(from_logits)
    margin = checks.number("margin", margin, low=0, closed=True)
    positive = checks.number("positive", positive, low=0, closed=True)
    negative = checks.number("negative", negative, low=0, closed=True)
    shared = multi_label, ignore_class, sample_weight, cross_replica
    batch = inputs.standardize(y_true, y_pred, from_logits, *shared)
    logits = batch.predictions
    largest = ops.max(logits, axis=-1, keepdims=True)
    # The largest logit has a distance of 0 and adds nothing.
    below = _squared(ops.stop_gradient(largest) - logits - margin)
    below = ops.sum(below, axis=-1) / (batch.num_classes - 1)
    above = _squared(largest[:, 0] - margin)
    return base.mean(positive * above + negative * below, batch)


@keras.saving.register_keras_serializable("caltrain_tf")
class ACLS(base.Loss):
    """`acls` as a Keras loss; see there for the arguments."""

    function = staticmethod(acls)

    def __init__(
        self,
        margin=10.0,
        positive=1.0,
        negative=0.1,
        from_logits=False,
        name="acls",
        *,
        multi_label=False,
        ignore_class=None,
        reduction="sum_over_batch_size",
    ):
        _check_logits(from_logits)
        shared = from_logits, name, multi_label, ignore_class, reduction
        super().__init__(*shared)
        self.margin = checks.number("margin", margin, low=0, closed=True)
        self.positive = checks.number("positive", positive, low=0, closed=True)
        self.negative = checks.number("negative", negative, low=0, closed=True)


def _check_logits(from_logits):
    if not checks.flag("from_logits", from_logits):
        raise ValueError(
            "`from_logits` must be True: a margin is a distance of logits. "
            "Remove the softmax of the last layer. "
            f"Received: from_logits={from_logits!r}"
        )
    return True


def _squared(distance):
    # `where` keeps NaN; `clip` may turn it into a number under XLA.
    is_large = distance > _LARGEST_DISTANCE
    distance = ops.where(is_large, _LARGEST_DISTANCE, distance)
    return ops.square(ops.relu(distance))
