"""SmoothECE: a calibration error with a kernel that sets its own width."""

import numpy as np

from caltrain_tf.metrics.binning import ROWS_PER_BLOCK
from caltrain_tf.metrics.blocks import map_blocks
from caltrain_tf.metrics.top_label import top_label

# The grid has at least this many cells in one bandwidth.
CELLS_PER_BANDWIDTH = 16
FIRST_GRID = 2**10
LARGEST_GRID = 2**18
BISECTIONS = 40


def smooth_calibration_error(probs, labels, *, from_logits=False):
    r"""Smooth calibration error (smECE).

    The excess c_i - a_i of confidence over correctness is smoothed by a
    Gaussian kernel of standard deviation s, reflected at 0 and 1,

        smECE_s = int_0^1 |1/N sum_i (c_i - a_i) K_s(t, c_i)| dt

    which does not increase with s. The result is the one s with smECE_s = s:
    errors are seen at the scale of their own size.

    The reflected kernel is the heat kernel of an interval with closed ends, so
    that a cosine transform turns the smoothing into a product. The excess is
    spread over a grid with weights that are exact for cubic polynomials, and
    the grid is refined until it resolves the bandwidth; the result agrees with
    direct summation to about 1e-6 of its value.

    Args:
        probs: Probabilities, or logits, `(N, K)`.
        labels: Class ids `(N,)`, or one-hot rows `(N, K)`.
        from_logits: Whether `probs` holds logits.

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
    return smooth_of_confidence(*top_label(probs, labels, from_logits))


def smooth_of_confidence(confidence, correct):
    """`smooth_calibration_error`, given confidences and correctness."""
    if np.array_equal(confidence, correct):
        return 0.0
    size = FIRST_GRID
    while True:
        bandwidth = _fixed_point(_spread(confidence, correct, size))
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


def _spread(confidence, correct, size):
    """The mean excess on the centres of `size` cells of [0, 1].

    Each example is shared by the four nearest centres, in proportions that keep
    its moments up to the third: those of cubic interpolation. Centres outside
    are the mirror images of those inside.
    """

    def spread_block(start, stop):
        points = confidence[start:stop].astype(np.float64)
        excess = points - correct[start:stop]
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

    # 128 bytes: what an example takes with its temporaries.
    blocks = map_blocks(
        spread_block, len(confidence), 128, block_bytes=128 * ROWS_PER_BLOCK
    )
    return np.sum(blocks, axis=0) / len(confidence)
