"""Expected squared difference, a calibration error without parameters."""

import keras
from keras import ops

from caltrain_tf.losses.base import FunctionLoss
from caltrain_tf.losses.base import loss_function
from caltrain_tf.ops import inputs
from caltrain_tf.ops import predictions
from caltrain_tf.ops.replicas import gather_over_replicas
from caltrain_tf.ops.running_sums import sums_below_and_at

# The least share of triples of distinct examples, by weight, among all: of
# three equal weights it is 2/9, of two examples 0.
_SMALLEST_SHARE = 1e-4


@loss_function()
def esd(batch):
    """Expected squared difference of the two sides of calibration.

    With confidences c_i, correctness a_i, and for each example i the mean
    gbar_i and the unbiased variance s_i^2 over all j other than i of
    g_ij = (a_j - c_j) 1[c_j <= c_i],

        esd = mean_i [gbar_i^2 - s_i^2 / (N - 1)]

    It has neither bins nor a kernel nor parameters, and its expectation is 0
    for a calibrated model; the value of a batch may be negative. It is
    computed in O(N log N) as the mean over triples of distinct examples,

        sum_i sum_{j != k, both != i} g_ij g_ik / (N (N - 1) (N - 2)),

    which with weights is the mean of the triples weighed by w_i w_j w_k. Fewer
    than three examples have no variance, and a loss of 0; the authors' code
    divides by 0 there. For more it has the same values, from N x N matrices.

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
    confidence = predictions.confidence(batch.predictions, batch.from_logits)
    correct = predictions.correctness(batch.labels, batch.predictions)
    doubt, gap, weight = _doubt(batch), correct - confidence, batch.weight
    if batch.cross_replica:
        together = ops.stack([doubt, gap, weight], axis=1)
        together = gather_over_replicas(together)
        doubt, gap, weight = ops.unstack(together, 3, axis=1)
    doubt = ops.stop_gradient(doubt)
    order = ops.argsort(-doubt)
    doubt, gap, weight = (ops.take(x, order) for x in (doubt, gap, weight))
    gap = weight * gap
    terms = ops.stack([gap, ops.square(gap)], axis=1)
    below, at = sums_below_and_at(doubt, terms)
    # Of all j other than i: the sum of g_ij, and that of its squares.
    sums, squares = ops.unstack(below + at - terms, 2, axis=1)
    pairs = ops.square(sums) - squares
    total, second, third = (ops.sum(weight**power) for power in (1, 2, 3))
    triples = total**3 - 3.0 * total * second + 2.0 * third
    is_defined = triples > _SMALLEST_SHARE * total**3
    mean = ops.sum(weight * pairs) / ops.where(is_defined, triples, 1.0)
    return ops.where(is_defined, mean, 0.0 * mean)


@keras.saving.register_keras_serializable("caltrain_tf")
class ESD(FunctionLoss, function=esd, name="esd"):
    """`esd` as a loss for `model.compile`."""


def _doubt(batch):
    """What sorts examples by confidence, highest confidence lowest, `(n,)`.

    Of logits it is sum_k exp(z_k - z_max) without the largest itself, which
    tells saturated examples apart whose confidence is 1 in float32.
    """
    y_pred = ops.stop_gradient(batch.predictions)
    if not batch.from_logits:
        return -ops.max(y_pred, axis=-1)
    largest = ops.max(y_pred, axis=-1, keepdims=True)
    predicted = ops.expand_dims(inputs.first_argmax(y_pred), -1)
    is_largest = predicted == inputs.class_range(y_pred.shape[1])
    powers = ops.where(is_largest, 0.0, ops.exp(y_pred - largest))
    return ops.sum(powers, axis=-1)
