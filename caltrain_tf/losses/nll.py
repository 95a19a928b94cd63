"""Negative log-likelihood, the cross-entropy of a classifier."""

import keras
from keras import ops

from caltrain_tf.losses.base import FunctionLoss, check_share, loss_function


@loss_function(per_example=True, label_smoothing=check_share)
def nll(batch, *, label_smoothing=0.0):
    """Negative log-likelihood of the labels, in nats.

    nll = -sum_k y_k log p_k

    Args:
        batch: The examples.
        label_smoothing: s in [0, 1); labels become (1 - s) y + s / classes.

    Returns:
        A value for each example, `(...)`.

    Example:
        >>> import caltrain_tf as ct
        >>> ct.losses.nll([0, 1], [[0.5, 0.5], [0.8, 0.2]]).numpy().round(4)
        array([0.6931, 1.6094], dtype=float32)
        >>> loss = ct.losses.NLL(label_smoothing=0.1)
        >>> round(float(loss([0, 1], [[0.5, 0.5], [0.8, 0.2]])), 4)
        1.1166
    """
    num_classes = batch.predictions.shape[1]
    log_probs = batch.log_probabilities()
    targets = batch.label_distribution()
    if label_smoothing:
        targets = (1.0 - label_smoothing) * targets
        targets = targets + label_smoothing / num_classes
    return -ops.sum(targets * log_probs, axis=-1)


@keras.saving.register_keras_serializable("caltrain_tf")
class NLL(FunctionLoss, function=nll, name="nll"):
    """`nll` as a loss for `model.compile`."""
