"""Expected squared difference, a calibration error without parameters."""

import keras
from keras import ops

from caltrain_tf.losses.base import FunctionLoss, loss_function
from caltrain_tf.losses.ties import (
    is_first_of_ties,
    running_sum_before,
    sums_over_ties,
)
from caltrain_tf.replicas import gather_over_replicas

# With a smaller doubt, the confidence is 1 in float64, too.
_SMALLEST_DOUBT = 2.0**-53


@loss_function()
def esd(batch):
    """Expected squared difference of cumulated accuracy and confidence.

    With confidences c_i, correctness a_i, and for each example i the mean
    gbar_i and the unbiased variance s_i^2 over all j other than i of
    g_ij = (a_j - c_j) 1[c_j <= c_i],

        esd = mean_i [gbar_i^2 - s_i^2 / (N - 1)]

    It has neither bins nor a kernel nor parameters, and its expectation is 0
    for a calibrated model; the value of a batch may be negative. It is
    computed in O(N log N) as the mean over triples of distinct examples,

        sum_i sum_{j != k, both != i} g_ij g_ik / (N (N - 1) (N - 2)),

    which with weights is the mean of the triples weighted by w_i w_j w_k. Fewer
    than three examples have no variance and a loss of 0; the authors' code
    divides by 0 there. For more examples, the authors' code gives the same
    values, from N x N matrices, unless logits are so far apart that confidences
    round to 1: those are ties there, and here only where they are 1 in float64.

    Args:
        batch: The examples.

    Returns:
        A scalar.

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.9, 0.1], [0.7, 0.3], [0.4, 0.6], [0.8, 0.2]]
        >>> round(float(ct.losses.esd([0, 1, 0, 1], probs)), 4)
        0.1567

    Reference:
        Yoon et al., "ESD: Expected Squared Difference as a Tuning-Free
        Trainable Calibration Measure", 2023.
    """
    confidence, doubt = _confidence_and_doubt(batch)
    correct = batch.correctness()
    gap, weight = correct - confidence, batch.weight
    if batch.cross_replica:
        together = ops.stack([doubt, gap, weight], axis=1)
        together = gather_over_replicas(together)
        doubt, gap, weight = ops.unstack(together, 3, axis=1)
    doubt = ops.stop_gradient(doubt)
    order = ops.argsort(-doubt)
    doubt, gap, weight = (ops.take(x, order) for x in (doubt, gap, weight))
    gap = weight * gap
    # Each pair j, k is multiplied by the weight of all third examples i whose
    # confidence is at least that of both. For every k, the sums are over the j
    # of lower confidence and over the j tied with k. Without differences of
    # large sums, uneven weights do not cost digits.
    is_first = is_first_of_ties(doubt)
    is_last = ops.concatenate([is_first[1:], is_first[:1]])
    after = ops.flip(running_sum_before(ops.flip(weight)))
    terms = [
        ops.where(is_first, running_sum_before(gap), 0.0),
        ops.where(is_last, after, 0.0),
        gap,
        weight,
    ]
    sums = sums_over_ties(is_first, ops.stack(terms, axis=1))
    gap_below, above, gap_tied, tied = ops.unstack(sums, 4, axis=1)
    third = above + (tied - weight)
    pairs = 2.0 * gap_below * third + (gap_tied - gap) * (third - weight)
    doubles = weight * running_sum_before(weight)
    triples = 6.0 * ops.sum(weight * running_sum_before(doubles))
    is_defined = triples > 0.0
    mean = ops.sum(gap * pairs) / ops.where(is_defined, triples, 1.0)
    # Not a plain 0, so that a diverged model shows as NaN.
    return ops.where(is_defined, mean, 0.0 * mean)


@keras.saving.register_keras_serializable("caltrain_tf")
class ESD(FunctionLoss, function=esd, name="esd"):
    """`esd` as a loss for `model.compile`."""


def _confidence_and_doubt(batch):
    """The confidence, and a doubt that sorts in reverse order, both `(n,)`.

    For logits, the doubt is 1 / confidence - 1, summed without the 1 of the
    largest class, so that it also sorts saturated examples, whose confidence is
    1 in float32.
    """
    y_pred = batch.predictions
    if not batch.from_logits:
        confidence = ops.max(y_pred, axis=-1)
        return confidence, -confidence
    powers = ops.exp(y_pred - ops.max(y_pred, axis=-1, keepdims=True))
    total = ops.sum(powers, axis=-1)
    others = ops.sum(ops.where(powers == 1.0, 0.0, powers), axis=-1)
    # Of the classes that share the largest logit, all but one count 1 each.
    doubt = others + (ops.round(total - others) - 1.0)
    return 1.0 / total, ops.where(doubt < _SMALLEST_DOUBT, 0.0, doubt)
