"""Negative log-likelihood, the cross-entropy of a classifier."""

import keras
from keras import ops

from caltrain_tf.checks import check_number
from caltrain_tf.losses.base import FunctionLoss
from caltrain_tf.ops import labels
from caltrain_tf.ops import predictions


def nll(y_true, y_pred, *, label_smoothing=0.0, from_logits=False):
    """Negative log-likelihood of the labels, in nats.

    nll = -sum_k y_k log p_k

    Args:
        y_true: Class ids `(batch,)` or label distributions `(batch, classes)`.
        y_pred: Probabilities, or logits, `(batch, classes)`.
        label_smoothing: s in [0, 1); labels become (1 - s) y + s / classes.
        from_logits: Whether `y_pred` holds logits.

    Returns:
        A value for each example, `(batch,)`.

    Example:
        >>> import caltrain_tf as ct
        >>> ct.losses.nll([0, 1], [[0.5, 0.5], [0.8, 0.2]]).numpy().round(4)
        array([0.6931, 1.6094], dtype=float32)
    """
    _check(label_smoothing)
    y_true, y_pred, _ = labels.standardize(y_true, y_pred, from_logits)
    num_classes = y_pred.shape[1]
    log_probs = predictions.log_probabilities(y_pred, from_logits)
    targets = labels.label_distribution(y_true, num_classes)
    if label_smoothing:
        targets = (1.0 - label_smoothing) * targets
        targets = targets + label_smoothing / num_classes
    values = -ops.sum(targets * log_probs, axis=-1)
    return labels.nan_where_invalid(values, y_true, num_classes)


@keras.saving.register_keras_serializable("caltrain_tf")
class NLL(FunctionLoss):
    """`nll` as a loss for `model.compile`; see there."""

    function = staticmethod(nll)
    option_names = ("label_smoothing",)

    def __init__(
        self, label_smoothing=0.0, from_logits=False, name="nll", **kwargs
    ):
        """Takes the options of `nll`."""
        _check(label_smoothing)
        super().__init__(from_logits, name, **kwargs)
        self.label_smoothing = label_smoothing


def _check(label_smoothing):
    # 1 itself would leave nothing of the label.
    if label_smoothing != 0:
        check_number("label_smoothing", label_smoothing, low=0, high=1)
