"""Means over the examples: accuracy, likelihood, Brier score, uncertainty."""

import numpy as np

from caltrain_tf.inputs import (
    read,
    row_sums,
    shift_logits,
    softmax,
    top_labels,
)

# Keras' epsilon: the smallest probability whose logarithm is taken.
SMALLEST_PROBABILITY = 1e-7


def accuracy(
    probs,
    labels,
    *,
    from_logits=False,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
):
    """Share of the examples whose label has the largest probability.

    Among equal largest probabilities, the first class is the predicted one.

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
        >>> ct.metrics.accuracy([[0.9, 0.1], [0.4, 0.6]], [0, 0])
        0.5
    """
    _, correct, weight = top_labels(
        probs, labels, from_logits, multi_label, ignore_class, sample_weight
    )
    return float(np.average(correct, weights=weight))


def negative_log_likelihood(
    probs,
    labels,
    *,
    from_logits=False,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
):
    """Mean of -log(probability of the label), in nats.

    Probabilities are taken to be at least 1e-7, as in Keras, so that a single
    saturated error does not make it infinite. For logits it is exact.

    Args:
        probs: Probabilities, or logits, `(..., K)`; `(N,)` or `(..., 1)` for
            class 1 of a binary problem.
        labels: Class ids `(...)`, or one-hot rows `(..., K)`.
        from_logits: Whether `probs` holds logits.
        multi_label: Whether the columns are binary problems, to be pooled.
        ignore_class: The label of examples that are ignored.
        sample_weight: Weights of shape `(...)`, or of its first axes.

    Returns:
        A float, at least 0.

    Example:
        >>> import caltrain_tf as ct
        >>> ct.metrics.negative_log_likelihood([[0.9, 0.1], [0.4, 0.6]], [0, 0])
        0.5108
    """
    examples = read(
        probs, labels, from_logits, multi_label, ignore_class, sample_weight
    )
    return _mean(nll_of_examples(examples), examples)


def nll_of_examples(examples):
    """The term of each example, `(n,)`."""

    def of_block(block, labels):
        of_label = _at_label(block, labels)
        if not examples.from_logits:
            return (-np.log(np.clip(of_label, SMALLEST_PROBABILITY, 1)),)
        largest = block.argmax(axis=1)
        # In float64, and without the lower bound of shifted logits.
        with np.errstate(over="ignore"):
            gap = _at_label(block, largest) - of_label
        gap = np.minimum(gap, np.finfo(np.float64).max)
        powers = shift_logits(block)
        np.exp(powers, out=powers)
        # The largest shifted logit is 0 and its exponential 1. Without it, the
        # float32 sum does not lose small terms.
        np.put_along_axis(powers, largest[:, None], 0, axis=1)
        return (np.log1p(row_sums(powers).astype(np.float64)) + gap,)

    return examples.map(of_block)[0]


def brier_score(
    probs,
    labels,
    *,
    from_logits=False,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
):
    """Mean squared distance of the probabilities from the one-hot label.

        1/N sum_i sum_k (p_ik - [k = label_i])^2

    Args:
        probs: Probabilities, or logits, `(..., K)`; `(N,)` or `(..., 1)` for
            class 1 of a binary problem.
        labels: Class ids `(...)`, or one-hot rows `(..., K)`.
        from_logits: Whether `probs` holds logits.
        multi_label: Whether the columns are binary problems, to be pooled.
        ignore_class: The label of examples that are ignored.
        sample_weight: Weights of shape `(...)`, or of its first axes.

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
    examples = read(
        probs, labels, from_logits, multi_label, ignore_class, sample_weight
    )
    return _mean(brier_of_examples(examples), examples)


def brier_of_examples(examples):
    """The term of each example, `(n,)`."""

    def of_block(block, labels):
        if examples.from_logits:
            block = softmax(shift_logits(block))
        of_label = _at_label(block, labels)
        squares = np.einsum("ij,ij->i", block, block).astype(np.float64)
        # sum_k p_k^2 - p_y^2 + (1 - p_y)^2. The first difference is small for
        # a confident row, and only rounding can make it negative.
        return (np.maximum(squares - of_label**2, 0) + (1 - of_label) ** 2,)

    return examples.map(of_block)[0]


def average_uncertainty(
    probs,
    labels=None,
    *,
    from_logits=False,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
):
    """Mean entropy of the predicted distributions, in nats.

        -1/N sum_i sum_k p_ik log p_ik

    Args:
        probs: Probabilities, or logits, `(..., K)`; `(N,)` or `(..., 1)` for
            class 1 of a binary problem.
        labels: Needed only for `ignore_class`. They are accepted, and checked,
            so that all metrics can be called in the same way.
        from_logits: Whether `probs` holds logits.
        multi_label: Whether the columns are binary problems, to be pooled.
        ignore_class: The label of examples that are ignored.
        sample_weight: Weights of shape `(...)`, or of its first axes.

    Returns:
        A float in [0, log K].

    Example:
        >>> import caltrain_tf as ct
        >>> ct.metrics.average_uncertainty([[0.5, 0.5], [1.0, 0.0]])
        0.3466
    """
    examples = read(
        probs,
        labels,
        from_logits,
        multi_label,
        ignore_class,
        sample_weight,
        needs_labels=False,
    )
    return _mean(entropy_of_examples(examples), examples)


def entropy_of_examples(examples):
    """The entropy of each example, `(n,)`."""

    def of_block(block, labels):
        del labels
        if examples.from_logits:
            block = shift_logits(block)
            powers = np.exp(block)
            total = row_sums(powers).astype(np.float64)
            mean = np.einsum("ij,ij->i", powers, block) / total
            return (np.log(total) - mean,)
        # The logarithm of the smallest number is finite: times 0 it is 0.
        logarithm = np.log(np.maximum(block, np.finfo(block.dtype).tiny))
        entropy = -np.einsum("ij,ij->i", block, logarithm)
        return (np.maximum(entropy, 0).astype(np.float64),)

    return examples.map(of_block)[0]


def _mean(values, examples):
    return float(np.average(values, weights=examples.weight))


def _at_label(block, labels):
    """The entry of each row that belongs to its label, float64."""
    entries = np.take_along_axis(block, labels[:, None], axis=1)
    return entries[:, 0].astype(np.float64)
