"""The share of correct predictions."""

from caltrain_tf.metrics.top_label import top_label


def accuracy(probs, labels, *, from_logits=False):
    """Share of the examples whose label has the largest probability.

    Among equal largest probabilities, the first class is the predicted one.

    Args:
        probs: Probabilities, or logits, `(N, K)`.
        labels: Class ids `(N,)`, or one-hot rows `(N, K)`.
        from_logits: Whether `probs` holds logits.

    Returns:
        A float in [0, 1].

    Example:
        >>> import caltrain_tf as ct
        >>> ct.metrics.accuracy([[0.9, 0.1], [0.4, 0.6]], [0, 0])
        0.5
    """
    return float(top_label(probs, labels, from_logits)[1].mean())
