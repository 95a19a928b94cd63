"""Maximum mean calibration error, a kernel measure without bins."""

from functools import partial

import keras
from keras import ops

from caltrain_tf import checks
from caltrain_tf.losses.base import FunctionLoss, loss_function
from caltrain_tf.losses.ties import (
    is_first_of_ties,
    running_sum_before,
    sums_over_ties,
)
from caltrain_tf.replicas import gather_over_replicas


@loss_function(
    width=partial(checks.number, low=0.01, closed=True), weighted=checks.flag
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
    confidence = batch.confidence()
    correct = batch.correctness()
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


def laplacian_quadratic_form(points, coefficients, width):
    r"""sum_ij e_i e_j exp(-|x_i - x_j| / width) without the N x N matrix.

    For sorted points the kernel is a product, exp(-x_i/w) exp(x_j/w) for
    x_j < x_i, so that a running sum gives each point's sum over all points to
    its left. These sums contain each pair once and are therefore doubled. Equal
    points have a kernel of 1 and no gradient between them, like |x| with a
    slope of 0 at 0. All operations can be differentiated any number of times.

    Args:
        points: x, `(n,)`, in [0, 1].
        coefficients: e, `(n,)`.
        width: w, at least 0.01, so that exp(x/w) stays inside float32.

    Returns:
        A scalar.
    """
    order = ops.argsort(ops.stop_gradient(points))
    x = ops.take(points, order)
    e = ops.take(coefficients, order)
    # Centred, so that neither factor leaves the range of float32.
    rising = ops.exp((x - 0.5) / width)
    falling = ops.exp((0.5 - x) / width)
    before = running_sum_before(e * rising)
    # What lies strictly to the left of equal points is the running sum at the
    # first of them; the others add 0 to that.
    is_first = is_first_of_ties(x)
    terms = ops.stack([ops.where(is_first, before, 0.0), e], axis=1)
    left, equal = ops.unstack(sums_over_ties(is_first, terms), 2, axis=1)
    return ops.sum(e * (equal + 2.0 * falling * left))
