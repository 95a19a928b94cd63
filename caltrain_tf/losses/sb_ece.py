"""Soft-binned expected calibration error."""

from functools import partial

import keras
from keras import ops

from caltrain_tf import checks
from caltrain_tf.losses import soft_bins
from caltrain_tf.losses.base import FunctionLoss, check_share, loss_function

CHANCE = "chance"
ESTIMATORS = {
    "bin": soft_bins.binned_error,
    "label": soft_bins.label_binned_error,
}


SOFT_BIN_CHECKS = {
    "num_bins": checks.count,
    "temperature": partial(checks.number, low=0),
    "norm": partial(checks.number, low=1, closed=True),
    "binning": partial(checks.choice, choices=tuple(ESTIMATORS)),
    "root": checks.flag,
}


def _check_lower(name, value):
    if isinstance(value, str):
        return checks.choice(name, value, (CHANCE,))
    return check_share(name, value)


@loss_function(**SOFT_BIN_CHECKS, lower=_check_lower)
def sb_ece(
    batch,
    *,
    num_bins=15,
    temperature=0.01,
    norm=2,
    binning="label",
    root=True,
    lower=0.0,
):
    """Differentiable expected calibration error over soft bins.

    With confidences c_i, correctness a_i and memberships
    u_ij = softmax_j(-(c_i - centre_j)^2 / temperature), a bin has the mass
    S_j = sum_i u_ij, the confidence C_j and the accuracy A_j, and

        bin:   (sum_j S_j / N |A_j - C_j|^norm)^(1/norm)            (eq. 11)
        label: (1/N sum_ij u_ij |A_j - c_i|^norm)^(1/norm)          (eq. 12)

    `root=False, lower="chance"` gives the authors' released code for eq. 12:
    bins on [1/K, 1], and memberships (1 - e) u + e / bins with e = 1e-5. Their
    code for eq. 11 is `binning="bin"`.

    Args:
        batch: The examples.
        num_bins: Number of bins.
        temperature: Softness of the bins; towards 0 they become hard.
        norm: The exponent, at least 1.
        binning: `"label"` or `"bin"`, as above. (In `ct.metrics`, `binning`
            is how the bins are cut: `"equal_mass"` or `"equal_width"`.)
        root: Whether to take the root at the end.
        lower: Where the first bin begins: a number, or `"chance"` for 1/K.

    Returns:
        A scalar.

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.9, 0.1], [0.7, 0.3], [0.4, 0.6]]
        >>> round(float(ct.losses.sb_ece([0, 1, 1], probs)), 4)
        0.2652
        >>> round(float(ct.losses.sb_ece([0, 1, 1], probs, binning="bin")), 4)
        0.2598

    Reference:
        Karandikar et al., "Soft Calibration Objectives for Neural Networks",
        2021, section 4.1.
    """
    as_released = lower == CHANCE
    lower = 1.0 / batch.predictions.shape[1] if as_released else lower
    confidence = batch.confidence()
    correct = batch.correctness()
    mean, scale = ESTIMATORS[binning](
        ops.expand_dims(confidence, -1),
        ops.expand_dims(correct, -1),
        batch.weight,
        (num_bins, temperature, lower),
        norm,
        batch.cross_replica,
        smoothed=as_released,
    )
    return soft_bins.finish(mean, scale, norm, root)


@keras.saving.register_keras_serializable("caltrain_tf")
class SBECE(FunctionLoss, function=sb_ece, name="sb_ece"):
    """`sb_ece` as a loss for `model.compile`."""
