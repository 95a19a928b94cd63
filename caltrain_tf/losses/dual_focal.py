"""Dual focal loss: focal loss that also counts the next class below."""

from functools import partial

import keras
from keras import ops

from caltrain_tf import checks, inputs
from caltrain_tf.losses.base import FunctionLoss, loss_function

# Where 1 - p + q is 0, its power would have an infinite slope for gamma < 1.
_SMALLEST_DOUBT = 1e-7


@loss_function(
    per_example=True, gamma=partial(checks.number, low=0, closed=True)
)
def dual_focal(batch, *, gamma=5.0):
    """Focal loss whose factor also counts the nearest class below the label's.

    With q_k the largest probability below p_k, or 0 where there is none,

        dual_focal = -sum_k y_k (1 - p_k + q_k)^gamma log p_k

    Focal loss makes predictions under-confident; measuring how well an example
    is predicted by the gap between p and q makes them less so. The gradient
    also flows through q, as in the authors' code, which gives the same values
    for class ids but sums them over the batch by default.

    Args:
        batch: The examples.
        gamma: The exponent, at least 0 (which gives `nll`).

    Returns:
        A value for each example, `(...)`.

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.5, 0.3, 0.2], [0.7, 0.2, 0.1]]
        >>> ct.losses.dual_focal([0, 1], probs).numpy().round(4)
        array([0.2271, 0.9503], dtype=float32)
        >>> loss = ct.losses.DualFocal(gamma=2.0)
        >>> round(float(loss([0, 1], probs)), 4)
        0.8736

    Reference:
        Tao et al., "Dual Focal Loss for Calibration", 2023.
    """
    y_pred = batch.predictions
    log_probs = batch.log_probabilities()
    probs = batch.probabilities()
    if len(batch.labels.shape) == 1:
        ids = ops.expand_dims(batch.labels, -1)
        is_label = ids == inputs.class_range(y_pred.shape[1])

        def of_label(values):
            values = ops.where(is_label, values, 0.0)
            return ops.sum(values, axis=-1, keepdims=True)

        # Logits are compared, since saturated probabilities may be equal.
        is_below = y_pred < of_label(y_pred)
        below = ops.max(ops.where(is_below, probs, 0.0), -1, keepdims=True)
        log_probs, targets = of_label(log_probs), 1.0
    else:
        below, targets = _next_below(y_pred, probs), batch.labels
    # 1 - exp(log p), without the cancellation close to p = 1.
    doubt = ops.maximum(below - ops.expm1(log_probs), _SMALLEST_DOUBT)
    modulation = ops.power(doubt, gamma)
    return -ops.sum(targets * modulation * log_probs, axis=-1)


@keras.saving.register_keras_serializable("caltrain_tf")
class DualFocal(FunctionLoss, function=dual_focal, name="dual_focal"):
    """`dual_focal` as a loss for `model.compile`."""


def _next_below(y_pred, probs):
    """For each class the largest probability below its own, `(n, classes)`."""
    num_classes = y_pred.shape[1]
    order = ops.argsort(ops.stop_gradient(y_pred), axis=-1)
    ordered = ops.take_along_axis(y_pred, order, axis=-1)
    is_above = ordered[:, 1:] > ordered[:, :-1]
    # One more than the place of the next class below, or 0 if there is none.
    # Classes of equal probability share that of the first of them, which a
    # running maximum over 1, 2, 4, ... places hands on.
    place = ops.where(is_above, ops.arange(1, num_classes, dtype="int32"), 0)
    place = ops.pad(place, ((0, 0), (1, 0)))
    step = 1
    while step < num_classes:
        earlier = ops.pad(place[:, :-step], ((0, 0), (step, 0)))
        place = ops.maximum(place, earlier)
        step *= 2
    values = ops.take_along_axis(probs, order, axis=-1)
    values = ops.pad(values, ((0, 0), (1, 0)))
    below = ops.take_along_axis(values, place, axis=-1)
    return ops.take_along_axis(below, ops.argsort(order, axis=-1), axis=-1)
