"""The negative log-likelihood."""

import numpy as np

from caltrain_tf.metrics.rows import at_label
from caltrain_tf.metrics.rows import row_sums
from caltrain_tf.metrics.rows import row_values
from caltrain_tf.metrics.rows import shift_logits

# Keras' epsilon: the smallest probability whose logarithm is taken.
SMALLEST_PROBABILITY = 1e-7


def negative_log_likelihood(probs, labels, *, from_logits=False):
    """Mean of -log(probability of the label), in nats.

    Probabilities are taken to be at least 1e-7, as in Keras, so that a single
    saturated error does not make it infinite. Of logits it is exact.

    Args:
        probs: Probabilities, or logits, `(N, K)`.
        labels: Class ids `(N,)`, or one-hot rows `(N, K)`.
        from_logits: Whether `probs` holds logits.

    Returns:
        A float, at least 0.

    Example:
        >>> import caltrain_tf as ct
        >>> ct.metrics.negative_log_likelihood([[0.9, 0.1], [0.4, 0.6]], [0, 0])
        0.5108
    """
    return float(nll_of_rows(probs, labels, from_logits).mean())


def nll_of_rows(probs, labels, from_logits=False):
    """The term of each example, `(N,)`."""
    return row_values(_nll, probs, labels, from_logits)


def _nll(block, labels, from_logits):
    of_label = at_label(block, labels).astype(np.float64)
    if not from_logits:
        of_label = np.clip(of_label, SMALLEST_PROBABILITY, 1)
        return -np.log(of_label)
    largest = block.argmax(axis=1)
    # In float64, and not of shifted logits, which have a lower bound.
    with np.errstate(over="ignore"):
        below_largest = at_label(block, largest).astype(np.float64) - of_label
    below_largest = np.minimum(below_largest, np.finfo(np.float64).max)
    powers = shift_logits(block)
    np.exp(powers, out=powers)
    # The largest logit is 0 and its power 1: left out of the float32 sum, it
    # does not swallow what is small beside it.
    np.put_along_axis(powers, largest[:, None], 0, axis=1)
    return np.log1p(row_sums(powers).astype(np.float64)) + below_largest
