"""The Kolmogorov-Smirnov calibration error, which needs no bins."""

import numpy as np

from caltrain_tf.metrics.binning import sort_together
from caltrain_tf.metrics.top_label import top_label


def ks_error(probs, labels, *, from_logits=False):
    """Largest difference of cumulated confidence and cumulated accuracy.

        max_t |1/N sum_{i: conf_i <= t} (conf_i - correct_i)|

    Examples of the same confidence enter together, so that the order of the
    examples does not matter.

    Args:
        probs: Probabilities, or logits, `(N, K)`.
        labels: Class ids `(N,)`, or one-hot rows `(N, K)`.
        from_logits: Whether `probs` holds logits.

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
    return ks_of_confidence(*top_label(probs, labels, from_logits))


def ks_of_confidence(confidence, correct):
    """`ks_error`, given confidences and correctness `(N,)`."""
    confidence, correct = sort_together(confidence, correct)
    excess = np.subtract(confidence, correct, dtype=np.float64)
    np.cumsum(excess, out=excess)
    # Inside of a group of ties the sum depends on their order.
    excess[:-1][confidence[1:] == confidence[:-1]] = 0
    return float(np.abs(excess, out=excess).max() / len(excess))
