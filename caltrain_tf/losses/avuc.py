"""Accuracy versus uncertainty calibration with a hard threshold."""

import keras
from keras import ops

from caltrain_tf.checks import check_number
from caltrain_tf.losses.base import BatchLoss
from caltrain_tf.ops import labels
from caltrain_tf.ops import predictions
from caltrain_tf.ops.accuracy_uncertainty import accuracy_versus_uncertainty


def avuc(
    y_true,
    y_pred,
    *,
    threshold=None,
    stop_gradient=False,
    from_logits=False,
    sample_weight=None,
    cross_replica=False,
):
    """Rewards certainty where accurate and uncertainty where not.

    An example is certain where its entropy h is below the threshold, and

        log(1 + (n_AU + n_IC) / (n_AC + n_IU)),
        n_AU = sum over accurate and uncertain of c tanh h,
        n_AC = sum over accurate and certain of c (1 - tanh h),
        n_IC = sum over inaccurate and certain of (1 - c) (1 - tanh h),
        n_IU = sum over inaccurate and uncertain of (1 - c) tanh h.

    Args:
        y_true: Class ids `(batch,)` or label distributions `(batch, classes)`.
        y_pred: Probabilities, or logits, `(batch, classes)`.
        threshold: Entropy in nats, above 0; half of log K when not given.
        stop_gradient: Whether to stop the gradient through c and 1 - c, which
            rewards confidence where it is wrong (the paper's AvUC-GS).
        from_logits: Whether `y_pred` holds logits.
        sample_weight: Weights `(batch,)` of the examples inside the sums.
        cross_replica: Whether to take all replicas' batches as one.

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
    _check(threshold)
    y_true, y_pred, weight = labels.standardize(
        y_true, y_pred, from_logits, sample_weight
    )
    if threshold is None:
        threshold = 0.5 * predictions.largest_entropy(y_pred.shape[1])
    entropy = predictions.entropy(y_pred, from_logits)
    # XLA shares this softmax with the entropy.
    probs = predictions.probabilities(y_pred, from_logits)
    confidence = ops.max(probs, axis=-1)
    if stop_gradient:
        confidence = ops.stop_gradient(confidence)
    doubt = 1.0 - confidence
    is_certain = entropy < threshold
    certainty = ops.where(is_certain, 1.0 - ops.tanh(entropy), 0.0)
    uncertainty = ops.where(is_certain, 0.0, ops.tanh(entropy))
    return accuracy_versus_uncertainty(
        predictions.correctness(y_true, y_pred),
        certainty=(confidence * certainty, doubt * certainty),
        uncertainty=(confidence * uncertainty, doubt * uncertainty),
        weight=weight,
        cross_replica=cross_replica,
    )


@keras.saving.register_keras_serializable("caltrain_tf")
class AvUC(BatchLoss):
    """`avuc` as a loss for `model.compile`; see there."""

    function = staticmethod(avuc)
    option_names = ("threshold", "stop_gradient")

    def __init__(
        self,
        threshold=None,
        stop_gradient=False,
        from_logits=False,
        name=None,
        **kwargs,
    ):
        """Takes the options of `avuc`."""
        _check(threshold)
        name = name or ("avuc_gs" if stop_gradient else "avuc")
        super().__init__(from_logits, name, **kwargs)
        self.threshold = threshold
        self.stop_gradient = stop_gradient


def _check(threshold):
    # The largest entropy, log K, is not known before the first prediction.
    if threshold is not None:
        check_number("threshold", threshold, low=0)
