"""Focal loss, with a fixed or a sample-dependent exponent."""

import math

import keras
from keras import ops

from caltrain_tf import checks, inputs
from caltrain_tf.losses.base import FunctionLoss, loss_function

FLSD53 = "flsd53"
# Where 1 - p is 0, its power would have an infinite slope for gamma < 1.
_SMALLEST_DOUBT = 1e-7


def _check_gamma(name, value):
    if isinstance(value, str):
        return checks.choice(name, value, (FLSD53,))
    return checks.number(name, value, low=0, closed=True)


@loss_function(per_example=True, gamma=_check_gamma)
def focal(batch, *, gamma=3.0):
    """Cross-entropy that gives less weight to examples predicted well.

    focal = -sum_k y_k (1 - p_k)^gamma log p_k

    Args:
        batch: The examples.
        gamma: The exponent, at least 0 (which gives `nll`). `"flsd53"` is a
            sample-dependent exponent: 5 where the label's class has p < 0.2,
            else 3.

    Returns:
        A value for each example, `(...)`.

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.5, 0.5], [0.9, 0.1]]
        >>> ct.losses.focal([0, 1], probs).numpy().round(4)
        array([0.0866, 1.6786], dtype=float32)
        >>> ct.losses.focal([0, 1], probs, gamma="flsd53").numpy().round(4)
        array([0.0866, 1.3597], dtype=float32)

    Reference:
        Mukhoti et al., "Calibrating Deep Neural Networks using Focal Loss",
        2020.
    """
    log_probs = batch.log_probabilities()
    if gamma == FLSD53:
        of_label = _of_label(ops.stop_gradient(log_probs), batch)
        gamma = ops.where(of_label < math.log(0.2), 5.0, 3.0)
    if len(batch.labels.shape) == 1:
        # The other classes would only be multiplied by 0.
        log_probs, targets = _of_label(log_probs, batch), 1.0
    else:
        targets = batch.labels
    # 1 - exp(log p), without the cancellation close to p = 1.
    doubt = ops.maximum(-ops.expm1(log_probs), _SMALLEST_DOUBT)
    modulation = ops.power(doubt, gamma)
    return -ops.sum(targets * modulation * log_probs, axis=-1)


@keras.saving.register_keras_serializable("caltrain_tf")
class Focal(FunctionLoss, function=focal, name="focal"):
    """`focal` as a loss for `model.compile`."""


def _of_label(values, batch):
    """The column `(n, 1)` of `values` that belongs to the label."""
    ids = ops.expand_dims(batch.class_ids(), -1)
    is_label = ids == inputs.class_range(values.shape[1])
    return ops.sum(ops.where(is_label, values, 0.0), axis=-1, keepdims=True)
