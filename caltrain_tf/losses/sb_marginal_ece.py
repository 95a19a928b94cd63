"""Soft-binned marginal calibration error: every class, not the top one."""

import keras

from caltrain_tf.losses.base import BatchLoss
from caltrain_tf.losses.sb_ece import ESTIMATORS
from caltrain_tf.losses.sb_ece import check_soft_bins
from caltrain_tf.ops import labels
from caltrain_tf.ops import predictions
from caltrain_tf.ops import soft_binning


def sb_marginal_ece(
    y_true,
    y_pred,
    *,
    num_bins=15,
    temperature=0.01,
    norm=2,
    binning="bin",
    root=True,
    from_logits=False,
    sample_weight=None,
    cross_replica=False,
):
    """Calibration error of every class probability over soft bins.

    With the bins of `sb_ece`, for each class k on its own probabilities p_ik
    and labels y_ik, and all classes counting the same:

        (1/K sum_k sum_j S_kj / N |A_kj - C_kj|^norm)^(1/norm)

    It bins `batch x classes` values, so that it takes `num_bins` times the
    memory of the logits; for many classes fewer bins are a good idea.

    Args:
        y_true: Class ids `(batch,)` or label distributions `(batch, classes)`.
        y_pred: Probabilities, or logits, `(batch, classes)`.
        num_bins: Number of bins on [0, 1].
        temperature: Softness of the bins; towards 0 they become hard.
        norm: The exponent, at least 1.
        binning: `"bin"` or `"label"`, as in `sb_ece`.
        root: Whether to take the root at the end.
        from_logits: Whether `y_pred` holds logits.
        sample_weight: Weights `(batch,)` of the examples inside the bins.
        cross_replica: Whether to take all replicas' batches as one.

    Returns:
        A scalar.

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.9, 0.1], [0.7, 0.3], [0.4, 0.6]]
        >>> round(float(ct.losses.sb_marginal_ece([0, 1, 1], probs)), 4)
        0.4403

    Reference:
        Karandikar et al., "Soft Calibration Objectives for Neural Networks",
        2021, appendix on multiclass calibration error.
    """
    check_soft_bins(num_bins, temperature, norm, binning)
    y_true, y_pred, weight = labels.standardize(
        y_true, y_pred, from_logits, sample_weight
    )
    num_classes = y_pred.shape[1]
    probs = predictions.probabilities(y_pred, from_logits)
    mean, scale = ESTIMATORS[binning](
        probs,
        labels.label_distribution(y_true, num_classes),
        soft_binning.soft_membership(probs, num_bins, temperature),
        labels.nan_where_invalid(weight, y_true, num_classes),
        norm,
        cross_replica,
    )
    return soft_binning.finish(mean, scale, norm, root)


@keras.saving.register_keras_serializable("caltrain_tf")
class SBMarginalECE(BatchLoss):
    """`sb_marginal_ece` as a loss for `model.compile`; see there."""

    function = staticmethod(sb_marginal_ece)
    option_names = ("num_bins", "temperature", "norm", "binning", "root")

    def __init__(
        self,
        num_bins=15,
        temperature=0.01,
        norm=2,
        binning="bin",
        root=True,
        from_logits=False,
        name="sb_marginal_ece",
        **kwargs,
    ):
        """Takes the options of `sb_marginal_ece`."""
        check_soft_bins(num_bins, temperature, norm, binning)
        super().__init__(from_logits, name, **kwargs)
        self.num_bins = num_bins
        self.temperature = temperature
        self.norm = norm
        self.binning = binning
        self.root = root
