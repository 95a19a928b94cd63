"""Differences between mean predictions and mean outcomes of a batch."""

import keras
from keras import ops

from caltrain_tf import inputs
from caltrain_tf.losses import base


def mdca(
    y_true,
    y_pred,
    from_logits=False,
    *,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
    cross_replica=False,
):
    """Distance between the mean prediction and the mean label of each class.

    mdca = 1/K sum_k |mean_i p_ik - mean_i y_ik|

    Args:
        y_true, y_pred, from_logits: As in `sb_ece`.
        multi_label, ignore_class, sample_weight, cross_replica: Likewise.

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.9, 0.1], [0.7, 0.3], [0.4, 0.6]]
        >>> round(float(ct.losses.mdca([0, 1, 1], probs)), 4)
        0.3333

    Reference:
        Hebbalaguppe et al., "A Stitch in Time Saves Nine: A Train-Time
        Regularizing Loss for Improved Neural Network Calibration", 2022.
    """
    shared = multi_label, ignore_class, sample_weight, cross_replica
    batch = inputs.standardize(y_true, y_pred, from_logits, *shared)
    excess = batch.probabilities() - batch.label_distribution()
    return ops.mean(ops.abs(base.mean(excess, batch)))


@keras.saving.register_keras_serializable("caltrain_tf")
class MDCA(base.Loss):
    """`mdca` as a Keras loss; see there for the arguments."""

    function = staticmethod(mdca)


def dca(
    y_true,
    y_pred,
    from_logits=False,
    *,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
    cross_replica=False,
):
    """Difference between the mean confidence and the accuracy of a batch.

    With confidences c_i and correctness a_i,

        dca = |mean_i c_i - mean_i a_i|

    Args:
        y_true, y_pred, from_logits: As in `sb_ece`.
        multi_label, ignore_class, sample_weight, cross_replica: Likewise.

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.9, 0.1], [0.7, 0.3], [0.4, 0.6]]
        >>> round(float(ct.losses.dca([0, 1, 1], probs)), 4)
        0.0667

    Reference:
        Liang et al., "Improved Trainable Calibration Method for Neural
        Networks on Medical Imaging Classification", 2020.
    """
    shared = multi_label, ignore_class, sample_weight, cross_replica
    batch = inputs.standardize(y_true, y_pred, from_logits, *shared)
    excess = batch.confidence() - batch.correctness()
    return ops.abs(base.mean(excess, batch))


@keras.saving.register_keras_serializable("caltrain_tf")
class DCA(base.Loss):
    """`dca` as a Keras loss; see there for the arguments."""

    function = staticmethod(dca)
