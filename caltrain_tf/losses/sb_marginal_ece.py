"""Soft-binned marginal calibration error, over every class."""

import keras

from caltrain_tf.losses import soft_bins
from caltrain_tf.losses.base import FunctionLoss, loss_function
from caltrain_tf.losses.sb_ece import ESTIMATORS, SOFT_BIN_CHECKS


@loss_function(**SOFT_BIN_CHECKS)
def sb_marginal_ece(
    batch,
    *,
    num_bins=15,
    temperature=0.01,
    norm=2,
    binning="bin",
    root=True,
):
    """Calibration error of every class probability over soft bins.

    Each class k has the soft bins of `sb_ece` for its own probabilities p_ik
    and labels y_ik, and all classes count the same:

        (1/K sum_k sum_j S_kj / N |A_kj - C_kj|^norm)^(1/norm)

    With `binning="label"`, or a temperature below about 0.006, it takes
    `num_bins` times the memory of the logits.

    Args:
        batch: The examples.
        num_bins: Number of bins on [0, 1].
        temperature: Softness of the bins; towards 0 they become hard.
        norm: The exponent, at least 1.
        binning: `"bin"` or `"label"`, as in `sb_ece`; not the `binning` of
            `ct.metrics`, which is how the bins are cut.
        root: Whether to take the root at the end.

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
    probs = batch.probabilities()
    mean, scale = ESTIMATORS[binning](
        probs,
        batch.label_distribution(),
        batch.weight,
        (num_bins, temperature, 0.0),
        norm,
        batch.cross_replica,
    )
    return soft_bins.finish(mean, scale, norm, root)


@keras.saving.register_keras_serializable("caltrain_tf")
class SBMarginalECE(
    FunctionLoss, function=sb_marginal_ece, name="sb_marginal_ece"
):
    """`sb_marginal_ece` as a loss for `model.compile`."""
