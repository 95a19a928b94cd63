"""Penalties on logits that are further apart than a margin.

They are defined on logits, not on probabilities, so that `from_logits=False` is
an error. A binary problem with logits z `(..., 1)` has the logits [0, z].
"""

from functools import partial

import keras
from keras import ops

from caltrain_tf import checks
from caltrain_tf.losses.base import FunctionLoss, loss_function
from caltrain_tf.replicas import sum_over_replicas

# Largest distance whose square, and sums of many squares, do not overflow
# float32. Larger ones are those of masked classes, which get no gradient.
_LARGEST_DISTANCE = 1e15
_check_not_negative = partial(checks.number, low=0, closed=True)


def _check_logits(name, value):
    if not checks.flag(name, value):
        raise ValueError(
            f"`{name}` must be True: a margin is a distance between logits, "
            "which probabilities do not have; remove the softmax of the last "
            "layer. "
            f"Received: {name}={value!r}"
        )
    return True


@loss_function(from_logits=_check_logits, margin=_check_not_negative)
def mbls(batch, *, margin=10.0):
    """Penalty on logits that lie more than a margin below the largest one.

    mbls = mean over examples and classes of max(0, max_j z_j - z_k - margin)

    It takes logits only: pass `from_logits=True`. In the paper, "margin-based
    label smoothing" is cross-entropy + 0.1 x this penalty:
    `CompositeLoss("nll", "mbls", beta=0.1, from_logits=True)`. `ignore_class`
    leaves examples out of the penalty, as `ignore_index` does in the authors'
    code.

    Args:
        batch: The examples.
        margin: The largest distance without a penalty, at least 0.

    Returns:
        A scalar.

    Example:
        >>> import caltrain_tf as ct
        >>> logits = [[8.0, 1.0], [-2.0, 3.0], [0.0, 4.0]]
        >>> loss = ct.losses.MbLS(margin=4.0, from_logits=True)
        >>> round(float(loss([0, 1, 1], logits)), 4)
        0.6667

    Reference:
        Liu et al., "The Devil is in the Margin: Margin-based Label Smoothing
        for Network Calibration", 2022.
    """
    largest = ops.max(batch.predictions, axis=-1, keepdims=True)
    penalty = ops.relu(largest - batch.predictions - margin)
    return _weighted_mean(ops.mean(penalty, axis=-1), batch)


@keras.saving.register_keras_serializable("caltrain_tf")
class MbLS(FunctionLoss, function=mbls, name="mbls"):
    """`mbls` as a loss for `model.compile`."""


@loss_function(
    from_logits=_check_logits,
    margin=_check_not_negative,
    positive=_check_not_negative,
    negative=_check_not_negative,
)
def acls(batch, *, margin=10.0, positive=1.0, negative=0.1):
    """Squared penalties on large logits and on those far below the largest.

    With z_max the largest logit of an example,

        acls = positive x mean_i max(0, z_max - margin)^2
             + negative x mean over examples and the other K - 1 classes of
               max(0, stop_gradient(z_max) - z_k - margin)^2

    It takes logits only: pass `from_logits=True`. In the paper it is added to
    cross-entropy with beta = 0.1. Where several classes share the largest
    logit, the authors' code adds the first term once for each of them; here it
    is added once. Distances beyond 1e15, as those of masked classes, count as
    1e15 and have no gradient.

    Args:
        batch: The examples.
        margin: The largest logit and distance without a penalty, at least 0.
        positive: Weight of the first term, at least 0.
        negative: Weight of the second term, at least 0.

    Returns:
        A scalar.

    Example:
        >>> import caltrain_tf as ct
        >>> logits = [[8.0, 1.0], [-2.0, 3.0], [0.0, 4.0]]
        >>> loss = ct.losses.ACLS(margin=4.0, from_logits=True)
        >>> round(float(loss([0, 1, 1], logits)), 4)
        5.6667

    Reference:
        Park et al., "ACLS: Adaptive and Conditional Label Smoothing for
        Network Calibration", 2023.
    """
    logits = batch.predictions
    largest = ops.max(logits, axis=-1, keepdims=True)
    # The largest logit has a distance of 0 and adds nothing.
    below = _squared(ops.stop_gradient(largest) - logits - margin)
    below = ops.sum(below, axis=-1) / (logits.shape[1] - 1)
    above = _squared(largest[:, 0] - margin)
    return _weighted_mean(positive * above + negative * below, batch)


@keras.saving.register_keras_serializable("caltrain_tf")
class ACLS(FunctionLoss, function=acls, name="acls"):
    """`acls` as a loss for `model.compile`."""


def _squared(distance):
    # `where` keeps NaN; `clip` may turn it into a number under XLA.
    distance = ops.where(
        distance > _LARGEST_DISTANCE, _LARGEST_DISTANCE, distance
    )
    return ops.square(ops.relu(distance))


def _weighted_mean(values, batch):
    """Mean of values `(n,)`, divided before the sum, which could overflow."""
    total = ops.sum(batch.weight)
    if batch.cross_replica:
        total = sum_over_replicas(total)
    mean = ops.sum(ops.divide_no_nan(batch.weight, total) * values)
    return sum_over_replicas(mean) if batch.cross_replica else mean
