"""Focal loss, with a fixed or a sample-dependent exponent."""

import keras
from keras import ops

from caltrain_tf.checks import check_choice
from caltrain_tf.checks import check_number
from caltrain_tf.losses.base import FunctionLoss
from caltrain_tf.ops import labels
from caltrain_tf.ops import predictions

FLSD53 = "flsd53"
# Where 1 - p is 0, its power would have an infinite slope for gamma < 1.
_SMALLEST_DOUBT = 1e-7


def focal(y_true, y_pred, *, gamma=3.0, from_logits=False):
    """Cross-entropy that counts what is already predicted well for less.

    focal = -sum_k y_k (1 - p_k)^gamma log p_k

    Args:
        y_true: Class ids `(batch,)` or label distributions `(batch, classes)`.
        y_pred: Probabilities, or logits, `(batch, classes)`.
        gamma: The exponent, at least 0 (which gives `nll`). `"flsd53"` is the
            sample-dependent one: 5 where the label's class has p < 0.2, else 3.
        from_logits: Whether `y_pred` holds logits.

    Returns:
        A value for each example, `(batch,)`.

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
    _check(gamma)
    y_true, y_pred, _ = labels.standardize(y_true, y_pred, from_logits)
    num_classes = y_pred.shape[1]
    log_probs = predictions.log_probabilities(y_pred, from_logits)
    if gamma == FLSD53:
        probs = predictions.probabilities(y_pred, from_logits)
        is_hard = _of_label(probs, y_true) < 0.2
        gamma = ops.where(is_hard, 5.0, 3.0)
    if len(y_true.shape) == 1:
        # The other classes would only be multiplied by 0.
        log_probs, targets = _of_label(log_probs, y_true), 1.0
    else:
        targets = y_true
    # 1 - exp(log p), without the cancellation close to p = 1.
    doubt = ops.maximum(-ops.expm1(log_probs), _SMALLEST_DOUBT)
    modulation = ops.power(doubt, gamma)
    values = -ops.sum(targets * modulation * log_probs, axis=-1)
    return labels.nan_where_invalid(values, y_true, num_classes)


@keras.saving.register_keras_serializable("caltrain_tf")
class Focal(FunctionLoss):
    """`focal` as a loss for `model.compile`; see there."""

    function = staticmethod(focal)
    option_names = ("gamma",)

    def __init__(self, gamma=3.0, from_logits=False, name="focal", **kwargs):
        """Takes the options of `focal`."""
        _check(gamma)
        super().__init__(from_logits, name, **kwargs)
        self.gamma = gamma


def _flsd53(y_true, probs):
    ids = ops.expand_dims(labels.class_ids(y_true), -1)
    is_label = ids == labels.class_range(probs.shape[1])
    of_label = ops.where(is_label, ops.stop_gradient(probs), 0.0)
    return ops.where(ops.sum(of_label, axis=-1, keepdims=True) < 0.2, 5.0, 3.0)


def _of_label(values, y_true):
    """The column `(batch, 1)` of `values` that belongs to the label."""
    ids = ops.expand_dims(labels.class_ids(y_true), -1)
    is_label = ids == labels.class_range(values.shape[1])
    return ops.sum(ops.where(is_label, values, 0.0), axis=-1, keepdims=True)


def _check(gamma):
    if isinstance(gamma, str):
        check_choice("gamma", gamma, (FLSD53,))
    else:
        check_number("gamma", gamma, low=0, closed=True)
