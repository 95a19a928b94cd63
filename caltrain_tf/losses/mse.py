"""Squared error between probabilities and labels."""

import keras
from keras import ops

from caltrain_tf.losses.base import FunctionLoss, loss_function


@loss_function(per_example=True)
def mse(batch):
    """Squared distance between the probabilities and the label.

    mse = sum_k (p_k - y_k)^2

    Its mean over a data set is the Brier score.

    Args:
        batch: The examples.

    Returns:
        A value for each example, `(...)`.

    Example:
        >>> import caltrain_tf as ct
        >>> ct.losses.mse([0, 1], [[0.5, 0.5], [0.8, 0.2]]).numpy().round(4)
        array([0.5 , 1.28], dtype=float32)

    Reference:
        Hui and Belkin, "Evaluation of Neural Architectures Trained with Square
        Loss vs Cross-Entropy in Classification Tasks", 2021.
    """
    probs = batch.probabilities()
    targets = batch.label_distribution()
    return ops.sum(ops.square(probs - targets), axis=-1)


@keras.saving.register_keras_serializable("caltrain_tf")
class MSE(FunctionLoss, function=mse, name="mse"):
    """`mse` as a loss for `model.compile`."""
