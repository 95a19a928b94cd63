"""Soft-binned expected calibration error."""

import keras
from keras import ops

from caltrain_tf.checks import check_choice
from caltrain_tf.checks import check_count
from caltrain_tf.checks import check_number
from caltrain_tf.losses.base import BatchLoss
from caltrain_tf.ops import labels
from caltrain_tf.ops import predictions
from caltrain_tf.ops import soft_binning

CHANCE = "chance"
ESTIMATORS = {
    "bin": soft_binning.binned_error,
    "label": soft_binning.label_binned_error,
}


def sb_ece(
    y_true,
    y_pred,
    *,
    num_bins=15,
    temperature=0.01,
    norm=2,
    binning="label",
    root=True,
    lower=0.0,
    from_logits=False,
    sample_weight=None,
    cross_replica=False,
):
    """Expected calibration error over soft bins, differentiable.

    With confidences c_i, correctness a_i and memberships
    u_ij = softmax_j(-(c_i - centre_j)^2 / temperature), a bin has the mass
    S_j = sum_i u_ij, the confidence C_j and the accuracy A_j, and

        bin:   (sum_j S_j / N |A_j - C_j|^norm)^(1/norm)            (eq. 11)
        label: (1/N sum_ij u_ij |A_j - c_i|^norm)^(1/norm)          (eq. 12)

    The authors' released code for eq. 12 is reached with `root=False,
    lower="chance"`: bins on [1/K, 1], and memberships (1 - e) u + e / bins with
    e = 1e-5. Their code for eq. 11 is `binning="bin"`.

    Args:
        y_true: Class ids `(batch,)` or label distributions `(batch, classes)`.
        y_pred: Probabilities, or logits, `(batch, classes)`.
        num_bins: Number of bins.
        temperature: Softness of the bins; towards 0 they become hard.
        norm: The exponent, at least 1.
        binning: `"label"` or `"bin"`, as above.
        root: Whether to take the root at the end.
        lower: Where the first bin begins: a number, or `"chance"` for 1/K.
        from_logits: Whether `y_pred` holds logits.
        sample_weight: Weights `(batch,)` of the examples inside the bins.
        cross_replica: Whether to take all replicas' batches as one.

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
    _check(num_bins, temperature, norm, binning, lower)
    y_true, y_pred, weight = labels.standardize(
        y_true, y_pred, from_logits, sample_weight
    )
    as_released = lower == CHANCE
    lower = 1.0 / y_pred.shape[1] if as_released else lower
    confidence = predictions.confidence(y_pred, from_logits)
    correct = predictions.correctness(y_true, y_pred)
    membership = soft_binning.soft_membership(
        ops.expand_dims(confidence, -1), num_bins, temperature, lower
    )
    if as_released and binning == "label":
        membership = soft_binning.smooth_membership(membership)
    mean, scale = ESTIMATORS[binning](
        ops.expand_dims(confidence, -1),
        ops.expand_dims(correct, -1),
        membership,
        weight,
        norm,
        cross_replica,
    )
    return soft_binning.finish(mean, scale, norm, root)


@keras.saving.register_keras_serializable("caltrain_tf")
class SBECE(BatchLoss):
    """`sb_ece` as a loss for `model.compile`; see there."""

    function = staticmethod(sb_ece)
    option_names = (
        "num_bins",
        "temperature",
        "norm",
        "binning",
        "root",
        "lower",
    )

    def __init__(
        self,
        num_bins=15,
        temperature=0.01,
        norm=2,
        binning="label",
        root=True,
        lower=0.0,
        from_logits=False,
        name="sb_ece",
        **kwargs,
    ):
        """Takes the options of `sb_ece`."""
        _check(num_bins, temperature, norm, binning, lower)
        super().__init__(from_logits, name, **kwargs)
        self.num_bins = num_bins
        self.temperature = temperature
        self.norm = norm
        self.binning = binning
        self.root = root
        self.lower = lower


def check_soft_bins(num_bins, temperature, norm, binning):
    """Raises on options that no soft binning can have."""
    check_count("num_bins", num_bins)
    check_number("temperature", temperature, low=0)
    check_number("norm", norm, low=1, closed=True)
    check_choice("binning", binning, tuple(ESTIMATORS))


def _check(num_bins, temperature, norm, binning, lower):
    check_soft_bins(num_bins, temperature, norm, binning)
    if isinstance(lower, str):
        check_choice("lower", lower, (CHANCE,))
    elif lower != 0:
        check_number("lower", lower, low=0, high=1)
