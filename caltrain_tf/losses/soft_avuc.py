"""Soft accuracy versus uncertainty calibration."""

import math
from functools import partial

import keras
from keras import ops

from caltrain_tf import checks
from caltrain_tf.losses.avuc import accuracy_versus_uncertainty
from caltrain_tf.losses.base import FunctionLoss, loss_function

# How far the normalised entropy stays from 0 and 1, where its log-odds are
# infinite. In float32 a uniform prediction lands on 1 or beyond.
_MARGIN = 1e-6


@loss_function(
    threshold=partial(checks.number, low=0, high=1),
    temperature=partial(checks.number, low=0),
)
def soft_avuc(batch, *, threshold=0.5, temperature=0.1):
    """Softly rewards certain accurate and uncertain inaccurate predictions.

    With the entropy h in nats, h* = h / log K and the soft uncertainty
    t = logistic(log[h* (1 - kappa) / ((1 - h*) kappa)] / temperature),

        log(1 + (n_AU + n_IC) / (n_AC + n_IU)),
        n_AU = sum over accurate of t tanh h,
        n_AC = sum over accurate of (1 - t) (1 - tanh h),

    and likewise n_IU and n_IC over the inaccurate examples (equation 15).

    Args:
        batch: The examples.
        threshold: kappa in (0, 1), a share of the largest entropy.
        temperature: Softness; towards 0 the threshold becomes hard.

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
    entropy = batch.entropy()
    share = entropy / math.log(batch.num_classes)
    share = ops.clip(share, _MARGIN, 1.0 - _MARGIN)
    log_odds = ops.log(share) - ops.log1p(-share)
    threshold_log_odds = math.log(threshold) - math.log1p(-threshold)
    soft_uncertainty = ops.sigmoid(
        (log_odds - threshold_log_odds) / temperature
    )
    uncertain = soft_uncertainty * ops.tanh(entropy)
    certain = (1.0 - soft_uncertainty) * (1.0 - ops.tanh(entropy))
    return accuracy_versus_uncertainty(
        batch, certainty=(certain, certain), uncertainty=(uncertain, uncertain)
    )


@keras.saving.register_keras_serializable("caltrain_tf")
class SoftAvUC(FunctionLoss, function=soft_avuc, name="s_avuc"):
    """`soft_avuc` as a loss for `model.compile`."""
