"""The Brier score."""

import numpy as np

from caltrain_tf.metrics.rows import at_label
from caltrain_tf.metrics.rows import row_values
from caltrain_tf.metrics.rows import shift_logits
from caltrain_tf.metrics.rows import softmax


def brier_score(probs, labels, *, from_logits=False):
    """Mean squared distance of the probabilities from the one-hot label.

        1/N sum_i sum_k (p_ik - [k = label_i])^2

    Args:
        probs: Probabilities, or logits, `(N, K)`.
        labels: Class ids `(N,)`, or one-hot rows `(N, K)`.
        from_logits: Whether `probs` holds logits.

    Returns:
        A float in [0, 2].

    Example:
        >>> import caltrain_tf as ct
        >>> ct.metrics.brier_score([[0.9, 0.1], [0.4, 0.6]], [0, 0])
        0.37

    Reference:
        Brier, "Verification of Forecasts Expressed in Terms of Probability",
        1950.
    """
    return float(brier_of_rows(probs, labels, from_logits).mean())


def brier_of_rows(probs, labels, from_logits=False):
    """The term of each example, `(N,)`."""
    return row_values(_squared_distance, probs, labels, from_logits)


def _squared_distance(block, labels, from_logits):
    probs = softmax(shift_logits(block)) if from_logits else block
    of_label = at_label(probs, labels).astype(np.float64)
    squares = np.einsum("ij,ij->i", probs, probs).astype(np.float64)
    # sum_k p_k^2 - p_y^2 + (1 - p_y)^2. Of a confident row the first difference
    # is small, and no more than rounding may be below 0.
    return np.maximum(squares - of_label**2, 0) + (1 - of_label) ** 2
