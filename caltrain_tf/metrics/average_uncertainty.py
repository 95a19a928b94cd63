"""The mean entropy of the predictions."""

import numpy as np

from caltrain_tf.metrics.inputs import as_predictions
from caltrain_tf.metrics.rows import row_sums
from caltrain_tf.metrics.rows import row_values
from caltrain_tf.metrics.rows import shift_logits


def average_uncertainty(probs, labels=None, *, from_logits=False):
    """Mean entropy of the predicted distributions, in nats.

        -1/N sum_i sum_k p_ik log p_ik

    Args:
        probs: Probabilities, or logits, `(N, K)`.
        labels: Not needed. Taken, and checked, so that all metrics can be
            called in the same way.
        from_logits: Whether `probs` holds logits.

    Returns:
        A float in [0, log K].

    Example:
        >>> import caltrain_tf as ct
        >>> ct.metrics.average_uncertainty([[0.5, 0.5], [1.0, 0.0]])
        0.3466
    """
    return float(entropy_of_rows(probs, labels, from_logits).mean())


def entropy_of_rows(probs, labels=None, from_logits=False):
    """The entropy of each example, `(N,)`."""
    if labels is None:
        probs = as_predictions(probs)
        labels = np.zeros(len(probs), np.int64)
    return row_values(_entropy, probs, labels, from_logits)


def _entropy(block, labels, from_logits):
    del labels
    if from_logits:
        block = shift_logits(block)
        powers = np.exp(block)
        total = row_sums(powers).astype(np.float64)
        return np.log(total) - np.einsum("ij,ij->i", powers, block) / total
    # log of the smallest number instead of 0: its product with 0 is 0.
    logarithm = np.log(np.maximum(block, np.finfo(block.dtype).tiny))
    return np.maximum(-np.einsum("ij,ij->i", block, logarithm), 0)
