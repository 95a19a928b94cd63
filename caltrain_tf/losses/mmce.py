"""Maximum mean calibration error, a kernel measure without bins."""

from functools import partial

import keras
from keras import ops

from caltrain_tf.checks import check_flag
from caltrain_tf.checks import check_number
from caltrain_tf.losses.base import FunctionLoss
from caltrain_tf.losses.base import loss_function
from caltrain_tf.ops import predictions
from caltrain_tf.ops.laplacian import laplacian_quadratic_form
from caltrain_tf.ops.replicas import gather_over_replicas


@loss_function(
    width=partial(check_number, low=0.01, closed=True), weighted=check_flag
)
def mmce(batch, *, width=0.4, weighted=False):
    """Squared maximum mean calibration error, in O(N log N).

    With confidences c_i, correctness a_i and k_ij = exp(-|c_i - c_j| / width),

        sum_ij (c_i - a_i) (c_j - a_j) k_ij / N^2

    With `weighted=True`, the correct and the incorrect examples count half
    each, however few they are: (c_i - a_i) / N becomes (c_i - a_i) / number of
    examples with the same correctness as i.

    `ct.metrics.mmce`, which takes arrays, is the square root of this loss.

    Args:
        batch: The examples.
        width: Width of the kernel, at least 0.01.
        weighted: Whether to give correct and incorrect examples the same total
            weight.

    Returns:
        A scalar.

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.9, 0.1], [0.7, 0.3], [0.4, 0.6]]
        >>> round(float(ct.losses.mmce([0, 1, 1], probs)), 4)
        0.0196

    Reference:
        Kumar et al., "Trainable Calibration Measures for Neural Networks from
        Kernel Mean Embeddings", 2018.
    """
    confidence = predictions.confidence(batch.predictions, batch.from_logits)
    correct = predictions.correctness(batch.labels, batch.predictions)
    weight = batch.weight
    if batch.cross_replica:
        together = ops.stack([confidence, correct, weight], axis=1)
        together = gather_over_replicas(together)
        confidence, correct, weight = ops.unstack(together, 3, axis=1)
    if weighted:
        hits = ops.sum(weight * correct)
        count = ops.where(correct == 1.0, hits, ops.sum(weight) - hits)
    else:
        count = ops.sum(weight)
    share = ops.divide_no_nan(weight, count)
    return laplacian_quadratic_form(
        confidence, share * (confidence - correct), width
    )


@keras.saving.register_keras_serializable("caltrain_tf")
class MMCE(FunctionLoss, function=mmce, name="mmce"):
    """`mmce` as a loss for `model.compile`."""
