"""The expected calibration error over hard bins."""

import numpy as np

from caltrain_tf.metrics.binning import bin_indices
from caltrain_tf.metrics.binning import fill_bins
from caltrain_tf.metrics.binning import inner_edges
from caltrain_tf.metrics.options import check_bins
from caltrain_tf.metrics.top_label import top_label


def calibration_error(
    probs,
    labels,
    num_bins=15,
    norm=2,
    binning="equal_mass",
    estimator="bin",
    debias=False,
    *,
    from_logits=False,
):
    """Expected calibration error of the predicted class (ECE).

    With bins of weight w_b (share of the examples), mean confidence conf_b and
    accuracy acc_b,

        bin:   (sum_b w_b |conf_b - acc_b|^norm)^(1/norm)
        label: (1/N sum_i |conf_i - acc_b(i)|^norm)^(1/norm)

    and for `norm=inf` the largest of the differences. Debiased, the square of
    a bin's difference is reduced by its expected value under calibration,
    acc_b (1 - acc_b) / (n_b - 1); bins of one example count 0, and the sum is
    at least 0.

    Equal-mass edges are the sorted confidences at min(round(linspace(0, N,
    num_bins, endpoint=False)), N - 1). An edge belongs to the bin above it, so
    that ties stay together, and the last bin is closed at 1. In that it differs
    from robustness_metrics, where confidences of exactly 1.0, of which
    saturated networks have thousands, fall into one more bin beyond the last.

    Args:
        probs: Probabilities, or logits, `(N, K)`.
        labels: Class ids `(N,)`, or one-hot rows `(N, K)`.
        num_bins: Number of bins.
        norm: 1, 2 or `math.inf`.
        binning: `"equal_mass"`, or `"equal_width"` on [0, 1].
        estimator: `"bin"` or `"label"`, as above.
        debias: Whether to subtract the bias; for `norm=2, estimator="bin"`.
        from_logits: Whether `probs` holds logits.

    Returns:
        A float in [0, 1].

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]]
        >>> ct.metrics.calibration_error(probs, [0, 0, 1, 0], num_bins=2)
        0.1500

    References:
        Naeini et al., "Obtaining Well Calibrated Probabilities Using Bayesian
        Binning", 2015. Kumar et al., "Verified Uncertainty Calibration", 2019
        (debiased). Karandikar et al., "Soft Calibration Objectives for Neural
        Networks", 2021 (label).
    """
    check_bins(num_bins, norm, binning, estimator, debias)
    confidence, correct = top_label(probs, labels, from_logits)
    return error_of_confidence(
        confidence, correct, num_bins, norm, binning, estimator, debias
    )


def error_of_confidence(
    confidence,
    correct,
    num_bins=15,
    norm=2,
    binning="equal_mass",
    estimator="bin",
    debias=False,
):
    """`calibration_error`, given confidences and correctness `(N,)`."""
    check_bins(num_bins, norm, binning, estimator, debias)
    edges = inner_edges(confidence, num_bins, binning)
    bins = fill_bins(confidence, correct, edges)
    if estimator == "label":
        accuracy = bins.accuracy[bin_indices(confidence, edges)]
        return power_mean(confidence - accuracy, norm)
    bias = 0.0
    if debias:
        accuracy = bins.accuracy
        bias = accuracy * (1 - accuracy) / np.maximum(bins.count - 1, 1)
    return power_mean(
        bins.confidence - bins.accuracy,
        norm,
        # A bin of one example says nothing about its own bias.
        bins.weight * (bins.count > 1) if debias else bins.weight,
        bias,
    )


def power_mean(gaps, norm, weights=None, bias=0.0):
    """(mean of |gaps|^norm - bias)^(1/norm), or the largest |gap|, a float."""
    gaps = np.abs(gaps)
    if norm == np.inf:
        return float(gaps.max() if weights is None else gaps[weights > 0].max())
    powers = gaps if norm == 1 else gaps**norm
    if weights is None:
        mean = np.mean(powers, dtype=np.float64)
    else:
        mean = np.sum(weights * (powers - bias))
    return float(max(mean, 0.0) ** (1 / norm))
