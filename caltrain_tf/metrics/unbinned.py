"""Calibration errors that need no bins: KS, MMCE and SmoothECE."""

import numpy as np

from caltrain_tf import checks
from caltrain_tf.inputs import map_blocks, top_labels
from caltrain_tf.metrics.binned import EXAMPLES_PER_BLOCK, sort_together

# Below it, the factors exp(1 / width) of MMCE's kernel would leave float64.
SMALLEST_WIDTH = 0.002
# SmoothECE's grid has at least this many cells in one bandwidth.
CELLS_PER_BANDWIDTH = 16
FIRST_GRID = 2**10
LARGEST_GRID = 2**18
BISECTIONS = 40


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
        probs: Probabilities, or logits, `(..., K)`; `(N,)` or `(..., 1)` for
            class 1 of a binary problem.
        labels: Class ids `(...)`, or one-hot rows `(..., K)`.
        from_logits: Whether `probs` holds logits.
        multi_label: Whether the columns are binary problems, to be pooled.
        ignore_class: The label of examples that are ignored.
        sample_weight: Weights of shape `(...)`, or of its first axes.

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
    return ks_of_confidence(
        *top_labels(
            probs, labels, from_logits, multi_label, ignore_class, sample_weight
        )
    )


def ks_of_confidence(confidence, correct, weight=None):
    """`ks_error`, given confidences and correctness `(n,)`."""
    confidence, correct, weight = sort_together(confidence, correct, weight)
    excess = np.subtract(confidence, correct, dtype=np.float64)
    if weight is not None:
        excess *= weight / weight.mean()
    np.cumsum(excess, out=excess)
    # Inside of a group of ties the sum depends on their order.
    excess[:-1][confidence[1:] == confidence[:-1]] = 0
    return float(np.abs(excess, out=excess).max() / len(excess))


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

    in O(N log N): for sorted values the kernel is a product, and running sums
    give each of its rows. The loss `ct.losses.mmce` is the square of this
    metric.

    Args:
        probs: Probabilities, or logits, `(..., K)`; `(N,)` or `(..., 1)` for
            class 1 of a binary problem.
        labels: Class ids `(...)`, or one-hot rows `(..., K)`.
        width: Width of the kernel, at least 0.002.
        from_logits: Whether `probs` holds logits.
        multi_label: Whether the columns are binary problems, to be pooled.
        ignore_class: The label of examples that are ignored.
        sample_weight: Weights of shape `(...)`, or of its first axes.

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
    confidence, correct, weight = top_labels(
        probs, labels, from_logits, multi_label, ignore_class, sample_weight
    )
    return mmce_of_confidence(confidence, correct, width, weight)


def mmce_of_confidence(confidence, correct, width=0.4, weight=None):
    """`mmce`, given confidences and correctness `(n,)`."""
    confidence, correct, weight = sort_together(confidence, correct, weight)
    points = confidence.astype(np.float64)
    excess = points - correct
    if weight is not None:
        excess *= weight / weight.mean()
    rising = excess * np.exp((points - points[0]) / width)
    # sum_{j < i} e_j exp((x_j - x_i) / width) for every i.
    before = np.concatenate([[0.0], np.cumsum(rising)[:-1]])
    before *= np.exp((points[0] - points) / width)
    total = excess @ excess + 2 * excess @ before
    return float(np.sqrt(max(total, 0.0)) / len(points))


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

    The reflected kernel is the heat kernel of an interval with closed ends, so
    that a cosine transform turns the smoothing into a product. The excess is
    spread over a grid with weights that are exact for cubic polynomials, and
    the grid is refined until it resolves the bandwidth; the result agrees with
    direct summation to about 1e-6 of its value.

    Args:
        probs: Probabilities, or logits, `(..., K)`; `(N,)` or `(..., 1)` for
            class 1 of a binary problem.
        labels: Class ids `(...)`, or one-hot rows `(..., K)`.
        from_logits: Whether `probs` holds logits.
        multi_label: Whether the columns are binary problems, to be pooled.
        ignore_class: The label of examples that are ignored.
        sample_weight: Weights of shape `(...)`, or of its first axes.

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
    return smooth_of_confidence(
        *top_labels(
            probs, labels, from_logits, multi_label, ignore_class, sample_weight
        )
    )


def smooth_of_confidence(confidence, correct, weight=None):
    """`smooth_calibration_error`, given confidences and correctness."""
    if np.array_equal(confidence, correct):
        return 0.0
    size = FIRST_GRID
    while True:
        cells = _spread(confidence, correct, weight, size)
        bandwidth = _fixed_point(cells)
        if bandwidth * size >= CELLS_PER_BANDWIDTH or size >= LARGEST_GRID:
            return bandwidth
        size *= 4


def _fixed_point(cells):
    """The s at which smECE_s = s, by bisection."""
    size = len(cells)
    # The cosine transform, through the Fourier transform of the mirror image.
    spectrum = np.fft.rfft(np.concatenate([cells, cells[::-1]]))
    decay = -0.5 * (np.pi * np.arange(size + 1)) ** 2

    def error(bandwidth):
        smooth = np.fft.irfft(spectrum * np.exp(decay * bandwidth**2))
        return np.abs(smooth[:size]).sum()

    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if error(middle) > middle:
            low = middle
        else:
            high = middle
    return float((low + high) / 2)


def _spread(confidence, correct, weight, size):
    """The mean excess on the centres of `size` cells of [0, 1].

    Each example is shared by the four nearest centres, in proportions that keep
    its moments up to the third: those of cubic interpolation. Centres outside
    are the mirror images of those inside.
    """

    def of_block(start, stop):
        points = confidence[start:stop].astype(np.float64)
        excess = points - correct[start:stop]
        if weight is not None:
            excess *= weight[start:stop]
        position = points * size - 0.5
        left = np.floor(position)
        t = position - left
        shares = (
            -t * (t - 1) * (t - 2) / 6,
            (t + 1) * (t - 1) * (t - 2) / 2,
            -(t + 1) * t * (t - 2) / 2,
            (t + 1) * t * (t - 1) / 6,
        )
        cells = np.zeros(size)
        for offset, share in enumerate(shares, start=-1):
            index = left.astype(np.int64) + offset
            index = np.where(index < 0, -1 - index, index)
            index = np.where(index >= size, 2 * size - 1 - index, index)
            cells += np.bincount(index, weights=excess * share, minlength=size)
        return cells

    # An example takes 128 bytes with its temporaries.
    parts = map_blocks(of_block, len(confidence), 128, 128 * EXAMPLES_PER_BLOCK)
    mass = len(confidence) if weight is None else weight.sum()
    return np.sum(parts, axis=0) / mass
