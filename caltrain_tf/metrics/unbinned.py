"""Calibration errors that need no bins: KS, MMCE and SmoothECE."""

import numpy as np
import scipy.fft
import scipy.optimize

from caltrain_tf import checks, inputs
from caltrain_tf.metrics import binned

# Below it, the factors exp(1 / width) of MMCE's kernel would leave float64.
SMALLEST_WIDTH = 0.002
# Cells of [0, 1] in which SmoothECE resolves a bandwidth of 0.001.
NUM_CELLS = 2**15


def ks_error(
    probs,
    labels,
    *,
    from_logits=False,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
):
    """Largest difference of cumulated confidence and cumulated accuracy.

        max_t |1/N sum_{i: conf_i <= t} (conf_i - correct_i)|

    Examples of the same confidence enter together, so that the order of the
    examples does not matter.

    Args:
        probs, labels, from_logits, multi_label, ignore_class, sample_weight: As
            in `calibration_error`.

    Returns:
        A float in [0, 1].

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]]
        >>> ct.metrics.ks_error(probs, [0, 0, 1, 0])
        0.15

    Reference:
        Gupta et al., "Calibration of Neural Networks using Splines", 2021.
    """
    shared = from_logits, multi_label, ignore_class, sample_weight
    outcomes = inputs.top_labels(probs, labels, *shared)
    confidence, excess, mass = _sorted_excess(outcomes)
    total = np.abs(np.cumsum(excess))
    # Inside of a group of ties the sum depends on their order.
    is_last = np.append(confidence[1:] != confidence[:-1], True)
    return float(total[is_last].max() / mass)


def mmce(
    probs,
    labels,
    width=0.4,
    *,
    from_logits=False,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
):
    """Maximum mean calibration error, a kernel measure without bins.

    With confidences c_i and correctness a_i,

        sqrt(sum_ij (c_i - a_i) (c_j - a_j) exp(-|c_i - c_j| / width)) / N

    in O(N log N). The loss `ct.losses.mmce` is the square of this metric.

    Args:
        probs, labels: As in `calibration_error`.
        width: Width of the kernel, at least 0.002.
        from_logits, multi_label, ignore_class, sample_weight: Likewise.

    Returns:
        A float in [0, 1].

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.9, 0.1], [0.7, 0.3], [0.4, 0.6]]
        >>> ct.metrics.mmce(probs, [0, 1, 1])
        0.1401

    Reference:
        Kumar et al., "Trainable Calibration Measures for Neural Networks from
        Kernel Mean Embeddings", 2018.
    """
    width = checks.number("width", width, low=SMALLEST_WIDTH, closed=True)
    shared = from_logits, multi_label, ignore_class, sample_weight
    outcomes = inputs.top_labels(probs, labels, *shared)
    points, excess, mass = _sorted_excess(outcomes)
    # For sorted values the kernel is a product of two exponentials.
    rising = excess * np.exp((points - points[0]) / width)
    # sum_{j < i} e_j exp((x_j - x_i) / width) for every i.
    before = np.concatenate([[0.0], np.cumsum(rising)[:-1]])
    before *= np.exp((points[0] - points) / width)
    total = excess @ excess + 2 * excess @ before
    return float(np.sqrt(max(total, 0.0)) / mass)


def smooth_calibration_error(
    probs,
    labels,
    *,
    from_logits=False,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
):
    r"""Smooth calibration error (smECE).

    The excess c_i - a_i of confidence over correctness is smoothed by a
    Gaussian kernel of standard deviation s, reflected at 0 and 1,

        smECE_s = int_0^1 |1/N sum_i (c_i - a_i) K_s(t, c_i)| dt

    which does not increase with s. The result is the only s with smECE_s = s,
    so that errors are measured at the scale of their own size.

    The excess is spread over a grid of 32,768 cells; the result agrees with
    direct summation to about 1e-5 of its value.

    Args:
        probs, labels, from_logits, multi_label, ignore_class, sample_weight: As
            in `calibration_error`.

    Returns:
        A float in [0, 1].

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.9, 0.1], [0.7, 0.3], [0.4, 0.6]]
        >>> ct.metrics.smooth_calibration_error(probs, [0, 1, 1])
        0.1196

    Reference:
        Blasiok and Nakkiran, "Smooth ECE: Principled Reliability Diagrams via
        Kernel Smoothing", 2023.
    """
    shared = from_logits, multi_label, ignore_class, sample_weight
    confidence, correct, weight = inputs.top_labels(probs, labels, *shared)
    if np.array_equal(confidence, correct):
        return 0.0
    points = confidence.astype(np.float64)
    weight = np.ones(len(points)) if weight is None else weight
    excess = weight * (points - correct) / weight.sum()
    # Each example is shared by the two nearest centres of cells, in proportions
    # that keep its position. Those outside are mirror images of those inside.
    position = points * NUM_CELLS - 0.5
    left = np.floor(position)
    cells = np.zeros(NUM_CELLS)
    for cell in (left, left + 1):
        share = 1 - np.abs(position - cell)
        cell = np.clip(cell, 0, NUM_CELLS - 1).astype(np.int64)
        cells += np.bincount(cell, excess * share, minlength=NUM_CELLS)
    # The reflected kernel is the heat kernel of an interval with closed ends: a
    # cosine transform turns the smoothing into a product.
    spectrum = scipy.fft.dct(cells)
    decay = -0.5 * (np.pi * np.arange(NUM_CELLS)) ** 2

    def difference(bandwidth):
        smooth = scipy.fft.idct(spectrum * np.exp(decay * bandwidth**2))
        return np.abs(smooth).sum() - bandwidth

    return float(scipy.optimize.brentq(difference, 0, 1, xtol=1e-12))


def _sorted_excess(outcomes):
    """Sorted confidences, their weighted excess, and the total weight."""
    confidence, correct, weight = binned.sort_together(*outcomes)
    return confidence, weight * (confidence - correct), weight.sum()
