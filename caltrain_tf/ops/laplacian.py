"""Quadratic forms of the Laplacian kernel in O(N log N)."""

from keras import ops

from caltrain_tf.ops.ties import is_first_of_ties
from caltrain_tf.ops.ties import running_sum_before
from caltrain_tf.ops.ties import sums_over_ties


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
