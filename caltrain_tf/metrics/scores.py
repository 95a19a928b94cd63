"""Means over the examples: accuracy, likelihood, Brier score, uncertainty."""

import numpy as np

from caltrain_tf import inputs

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
        probs, labels, from_logits, multi_label, ignore_class, sample_weight: As
            in `calibration_error`.

    Returns:
        A float in [0, 1].

    Example:
        >>> import caltrain_tf as ct
        >>> ct.metrics.accuracy([[0.9, 0.1], [0.4, 0.6]], [0, 0])
        0.5
    """
    shared = from_logits, multi_label, ignore_class, sample_weight
    _, correct, weight = inputs.top_labels(probs, labels, *shared)
    return mean(correct, weight)


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
        probs, labels, from_logits, multi_label, ignore_class, sample_weight: As
            in `calibration_error`.

    Returns:
        A float, at least 0.

    Example:
        >>> import caltrain_tf as ct
        >>> ct.metrics.negative_log_likelihood([[0.9, 0.1], [0.4, 0.6]], [0, 0])
        0.5108
    """
    shared = from_logits, multi_label, ignore_class, sample_weight
    examples = inputs.read(probs, labels, *shared)
    return mean(nll_of_examples(examples), examples.weight)


def nll_of_examples(examples):
    """The term of each example, `(n,)`."""

    def of_block(block, labels):
        of_label = inputs.at_class(block, labels).astype(np.float64)
        if not examples.from_logits:
            return (-np.log(np.clip(of_label, SMALLEST_PROBABILITY, 1)),)
        predicted = block.argmax(axis=1)
        gap = inputs.at_class(block, predicted) - of_label
        # The largest shifted logit is 0 and its exponential 1. Without it, the
        # sum does not lose small terms.
        powers = np.exp(inputs.shift_logits(block))
        np.put_along_axis(powers, predicted[:, None], 0, axis=1)
        return (gap + np.log1p(powers.sum(axis=1, dtype=np.float64)),)

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
        probs, labels, from_logits, multi_label, ignore_class, sample_weight: As
            in `calibration_error`.

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
    shared = from_logits, multi_label, ignore_class, sample_weight
    examples = inputs.read(probs, labels, *shared)
    return mean(brier_of_examples(examples), examples.weight)


def brier_of_examples(examples):
    """The term of each example, `(n,)`."""

    def of_block(block, labels):
        if examples.from_logits:
            block = np.exp(inputs.shift_logits(block))
            block /= block.sum(axis=1, keepdims=True)
        of_label = inputs.at_class(block, labels).astype(np.float64)
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
        labels: Needed only for `ignore_class`.
        probs, from_logits, multi_label, ignore_class, sample_weight: As in
            `calibration_error`.

    Returns:
        A float in [0, log K].

    Example:
        >>> import caltrain_tf as ct
        >>> ct.metrics.average_uncertainty([[0.5, 0.5], [1.0, 0.0]])
        0.3466
    """
    shared = from_logits, multi_label, ignore_class, sample_weight
    examples = inputs.read(probs, labels, *shared, needs_labels=False)
    return mean(entropy_of_examples(examples), examples.weight)


def entropy_of_examples(examples):
    """The entropy of each example, `(n,)`."""

    def of_block(block, _):
        if examples.from_logits:
            block = inputs.shift_logits(block)
            powers = np.exp(block)
            total = powers.sum(axis=1, dtype=np.float64)
            mean = np.einsum("ij,ij->i", powers, block) / total
            return (np.log(total) - mean,)
        # The logarithm of the smallest number is finite: times 0 it is 0.
        logarithm = np.log(np.maximum(block, np.finfo(block.dtype).tiny))
        entropy = -np.einsum("ij,ij->i", block, logarithm)
        return (np.maximum(entropy, 0).astype(np.float64),)

    return examples.map(of_block)[0]


def mean(values, weight=None):
    """Weighted mean of values `(n,)`, as a float."""
    return float(np.average(values, weights=weight))
