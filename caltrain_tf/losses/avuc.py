"""Accuracy versus uncertainty calibration with a hard threshold."""

import math

import keras
from keras import ops

from caltrain_tf import checks
from caltrain_tf.losses.base import FunctionLoss, loss_function
from caltrain_tf.replicas import sum_over_replicas

# The smallest denominator, as in the authors' released code.
SMALLEST_AGREEMENT = 1e-5


def _check_threshold(name, value):
    # The largest entropy, log K, is not known before the first prediction.
    return value if value is None else checks.number(name, value, low=0)


@loss_function(threshold=_check_threshold, stop_gradient=checks.flag)
def avuc(batch, *, threshold=None, stop_gradient=False):
    """Rewards certain accurate and uncertain inaccurate predictions.

    With the confidence c and the entropy h of an example, which is certain if h
    is below the threshold,

        log(1 + (n_AU + n_IC) / (n_AC + n_IU)),
        n_AU = sum over accurate and uncertain of c tanh h,
        n_AC = sum over accurate and certain of c (1 - tanh h),
        n_IC = sum over inaccurate and certain of (1 - c) (1 - tanh h),
        n_IU = sum over inaccurate and uncertain of (1 - c) tanh h.

    Args:
        batch: The examples.
        threshold: Entropy in nats, above 0; half of log K by default.
        stop_gradient: Whether to stop the gradient through c and 1 - c, since
            it rewards confidence in wrong predictions (the paper's AvUC-GS).

    Returns:
        A scalar.

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.9, 0.1], [0.7, 0.3], [0.4, 0.6]]
        >>> round(float(ct.losses.avuc([0, 1, 1], probs)), 4)
        0.3723

    Reference:
        Krishnan and Tickoo, "Improving model calibration with accuracy versus
        uncertainty optimization", 2020.
    """
    if threshold is None:
        num_classes = batch.predictions.shape[1]
        threshold = 0.5 * math.log(num_classes)
    entropy = batch.entropy()
    # XLA shares this softmax with the entropy.
    probs = batch.probabilities()
    confidence = ops.max(probs, axis=-1)
    if stop_gradient:
        confidence = ops.stop_gradient(confidence)
    doubt = 1.0 - confidence
    is_certain = entropy < threshold
    certainty = ops.where(is_certain, 1.0 - ops.tanh(entropy), 0.0)
    uncertainty = ops.where(is_certain, 0.0, ops.tanh(entropy))
    return accuracy_versus_uncertainty(
        batch,
        certainty=(confidence * certainty, doubt * certainty),
        uncertainty=(confidence * uncertainty, doubt * uncertainty),
    )


@keras.saving.register_keras_serializable("caltrain_tf")
class AvUC(FunctionLoss, function=avuc, name="avuc"):
    """`avuc` as a loss for `model.compile`."""


def accuracy_versus_uncertainty(batch, certainty, uncertainty):
    """log(1 + (n_AU + n_IC) / (n_AC + n_IU)), for hard and soft AvUC.

    Args:
        batch: The `Batch`.
        certainty: The pair of each example's term of n_AC, used if it is
            accurate, and of n_IC, used if it is not.
        uncertainty: Likewise, its terms of n_AU and n_IU.

    Returns:
        A scalar; 0 for a batch without any weight.
    """
    correct = batch.correctness()
    accurate = batch.weight * correct
    inaccurate = batch.weight * (1.0 - correct)
    agreement = accurate * certainty[0] + inaccurate * uncertainty[1]
    disagreement = accurate * uncertainty[0] + inaccurate * certainty[1]
    sums = ops.sum(ops.stack([agreement, disagreement]), axis=1)
    if batch.cross_replica:
        sums = sum_over_replicas(sums)
    smallest = max(SMALLEST_AGREEMENT, batch.smallest)
    return ops.log1p(sums[1] / ops.maximum(sums[0], smallest))
