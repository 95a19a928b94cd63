"""The maximum mean calibration error as a measure."""

import numpy as np

from caltrain_tf.checks import check_number
from caltrain_tf.metrics.binning import sort_together
from caltrain_tf.metrics.top_label import top_label

# Below it, the kernel's factors exp(1 / width) would leave float64.
SMALLEST_WIDTH = 0.002


def mmce(probs, labels, width=0.4, *, from_logits=False):
    """Maximum mean calibration error, a kernel measure without bins.

    With confidences c_i and correctness a_i,

        sqrt(sum_ij (c_i - a_i) (c_j - a_j) exp(-|c_i - c_j| / width)) / N

    in O(N log N): between sorted values the kernel is a product, and running
    sums give each of its rows. `ct.losses.mmce` is its square.

    Args:
        probs: Probabilities, or logits, `(N, K)`.
        labels: Class ids `(N,)`, or one-hot rows `(N, K)`.
        width: Width of the kernel, at least 0.002.
        from_logits: Whether `probs` holds logits.

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
    check_number("width", width, low=SMALLEST_WIDTH, closed=True)
    return mmce_of_confidence(*top_label(probs, labels, from_logits), width)


def mmce_of_confidence(confidence, correct, width=0.4):
    """`mmce`, given confidences and correctness `(N,)`."""
    confidence, correct = sort_together(confidence, correct)
    points = confidence.astype(np.float64)
    excess = points - correct
    rising = excess * np.exp((points - points[0]) / width)
    # sum_{j < i} e_j exp((x_j - x_i) / width) for every i.
    before = np.concatenate([[0.0], np.cumsum(rising)[:-1]])
    before *= np.exp((points[0] - points) / width)
    total = excess @ excess + 2 * excess @ before
    return float(np.sqrt(max(total, 0.0)) / len(points))
