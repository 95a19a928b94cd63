"""Soft accuracy versus uncertainty calibration."""

import math

import keras
from keras import ops

from caltrain_tf.checks import check_number
from caltrain_tf.losses.base import BatchLoss
from caltrain_tf.ops import labels
from caltrain_tf.ops import predictions
from caltrain_tf.ops.accuracy_uncertainty import accuracy_versus_uncertainty

# How far the normalised entropy stays from 0 and 1, where its log-odds are
# infinite. In float32 a uniform prediction lands on 1 or beyond.
_MARGIN = 1e-6


def soft_avuc(
    y_true,
    y_pred,
    *,
    threshold=0.5,
    temperature=0.1,
    from_logits=False,
    sample_weight=None,
    cross_replica=False,
):
    """Rewards certainty where accurate and uncertainty where not, softly.

    With the entropy h in nats, h* = h / log K and the soft uncertainty
    t = logistic(log[h* (1 - kappa) / ((1 - h*) kappa)] / temperature),

        log(1 + (n_AU + n_IC) / (n_AC + n_IU)),
        n_AU = sum over accurate of t tanh h,
        n_AC = sum over accurate of (1 - t) (1 - tanh h),

    and likewise n_IU and n_IC over the inaccurate ones (equation 15).

    Args:
        y_true: Class ids `(batch,)` or label distributions `(batch, classes)`.
        y_pred: Probabilities, or logits, `(batch, classes)`.
        threshold: kappa in (0, 1), a share of the largest entropy.
        temperature: Sharpness; towards 0 the threshold becomes hard.
        from_logits: Whether `y_pred` holds logits.
        sample_weight: Weights `(batch,)` of the examples inside the sums.
        cross_replica: Whether to take all replicas' batches as one.

    Returns:
        A scalar.

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.9, 0.1], [0.7, 0.3], [0.4, 0.6]]
        >>> round(float(ct.losses.soft_avuc([0, 1, 1], probs)), 4)
        0.4765

    Reference:
        Karandikar et al., "Soft Calibration Objectives for Neural Networks",
        2021, section 4.2.
    """
    _check(threshold, temperature)
    y_true, y_pred, weight = labels.standardize(
        y_true, y_pred, from_logits, sample_weight
    )
    entropy = predictions.entropy(y_pred, from_logits)
    share = entropy / predictions.largest_entropy(y_pred.shape[1])
    share = ops.clip(share, _MARGIN, 1.0 - _MARGIN)
    log_odds = ops.log(share) - ops.log1p(-share)
    threshold_log_odds = math.log(threshold) - math.log1p(-threshold)
    soft_uncertainty = ops.sigmoid(
        (log_odds - threshold_log_odds) / temperature
    )
    uncertain = soft_uncertainty * ops.tanh(entropy)
    certain = (1.0 - soft_uncertainty) * (1.0 - ops.tanh(entropy))
    return accuracy_versus_uncertainty(
        predictions.correctness(y_true, y_pred),
        certainty=(certain, certain),
        uncertainty=(uncertain, uncertain),
        weight=weight,
        cross_replica=cross_replica,
    )


@keras.saving.register_keras_serializable("caltrain_tf")
class SoftAvUC(BatchLoss):
    """`soft_avuc` as a loss for `model.compile`; see there."""

    function = staticmethod(soft_avuc)
    option_names = ("threshold", "temperature")

    def __init__(
        self,
        threshold=0.5,
        temperature=0.1,
        from_logits=False,
        name="s_avuc",
        **kwargs,
    ):
        """Takes the options of `soft_avuc`."""
        _check(threshold, temperature)
        super().__init__(from_logits, name, **kwargs)
        self.threshold = threshold
        self.temperature = temperature


def _check(threshold, temperature):
    check_number("threshold", threshold, low=0, high=1)
    check_number("temperature", temperature, low=0)
