"""Squared error between probabilities and labels."""

import keras
from keras import ops

from caltrain_tf.losses.base import FunctionLoss
from caltrain_tf.ops import labels
from caltrain_tf.ops import predictions


def mse(y_true, y_pred, *, from_logits=False):
    """Squared distance between the probabilities and the label.

    mse = sum_k (p_k - y_k)^2

    Its mean over a data set is the Brier score.

    Args:
        y_true: Class ids `(batch,)` or label distributions `(batch, classes)`.
        y_pred: Probabilities, or logits, `(batch, classes)`.
        from_logits: Whether `y_pred` holds logits.

    Returns:
        A value for each example, `(batch,)`.

    Example:
        >>> import caltrain_tf as ct
        >>> ct.losses.mse([0, 1], [[0.5, 0.5], [0.8, 0.2]]).numpy().round(4)
        array([0.5 , 1.28], dtype=float32)

    Reference:
        Hui and Belkin, "Evaluation of Neural Architectures Trained with Square
        Loss vs Cross-Entropy in Classification Tasks", 2021.
    """
    y_true, y_pred, _ = labels.standardize(y_true, y_pred, from_logits)
    num_classes = y_pred.shape[1]
    probs = predictions.probabilities(y_pred, from_logits)
    targets = labels.label_distribution(y_true, num_classes)
    values = ops.sum(ops.square(probs - targets), axis=-1)
    return labels.nan_where_invalid(values, y_true, num_classes)


@keras.saving.register_keras_serializable("caltrain_tf")
class MSE(FunctionLoss):
    """`mse` as a loss for `model.compile`; see there."""

    function = staticmethod(mse)

    def __init__(self, from_logits=False, name="mse", **kwargs):
        """Takes the options of `mse`."""
        super().__init__(from_logits, name, **kwargs)
