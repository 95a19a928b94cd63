"""Differences between mean predictions and mean outcomes of a batch."""

import keras
from keras import ops

from caltrain_tf.losses.base import FunctionLoss, loss_function
from caltrain_tf.replicas import sum_over_replicas


@loss_function()
def mdca(batch):
    """Distance between the mean prediction and the mean label of each class.

    mdca = 1/K sum_k |mean_i p_ik - mean_i y_ik|

    Args:
        batch: The examples.

    Returns:
        A scalar.

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.9, 0.1], [0.7, 0.3], [0.4, 0.6]]
        >>> round(float(ct.losses.mdca([0, 1, 1], probs)), 4)
        0.3333

    Reference:
        Hebbalaguppe et al., "A Stitch in Time Saves Nine: A Train-Time
        Regularizing Loss for Improved Neural Network Calibration", 2022.
    """
    probs = batch.probabilities()
    targets = batch.label_distribution()
    return ops.mean(ops.abs(_weighted_mean(probs - targets, batch)))


@keras.saving.register_keras_serializable("caltrain_tf")
class MDCA(FunctionLoss, function=mdca, name="mdca"):
    """`mdca` as a loss for `model.compile`."""


@loss_function()
def dca(batch):
    """Difference between the mean confidence and the accuracy of a batch.

    With confidences c_i and correctness a_i,

        dca = |mean_i c_i - mean_i a_i|

    Args:
        batch: The examples.

    Returns:
        A scalar.

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.9, 0.1], [0.7, 0.3], [0.4, 0.6]]
        >>> round(float(ct.losses.dca([0, 1, 1], probs)), 4)
        0.0667

    Reference:
        Liang et al., "Improved Trainable Calibration Method for Neural
        Networks on Medical Imaging Classification", 2020.
    """
    confidence = batch.confidence()
    correct = batch.correctness()
    excess = ops.expand_dims(confidence - correct, -1)
    return ops.sum(ops.abs(_weighted_mean(excess, batch)))


@keras.saving.register_keras_serializable("caltrain_tf")
class DCA(FunctionLoss, function=dca, name="dca"):
    """`dca` as a loss for `model.compile`."""


def _weighted_mean(values, batch):
    """The mean over examples of `values` `(n, columns)`."""
    weight = ops.expand_dims(batch.weight, -1)
    sums = ops.concatenate(
        [ops.sum(weight * values, axis=0), ops.sum(weight, axis=0)]
    )
    if batch.cross_replica:
        sums = sum_over_replicas(sums)
    return ops.divide_no_nan(sums[:-1], sums[-1])
