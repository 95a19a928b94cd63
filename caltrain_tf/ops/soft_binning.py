"""Soft bins: every prediction belongs to every bin, to the nearest one most.

The calibration errors here are the paper's equations 11 and 12 for any number
of columns: one column of confidences for the top-label error, one column a
class for the marginal error.
"""

from keras import ops

from caltrain_tf.ops.replicas import sum_over_replicas

# The smallest bin mass that is divided by, in examples.
SMALLEST_MASS = 1e-5
# How much of a uniform membership the authors' released code mixes in.
MEMBERSHIP_SMOOTHING = 1e-5


def soft_membership(values, num_bins, temperature, lower=0.0):
    """Membership of each value in bins of equal width on [lower, 1].

    u_j(c) = softmax_j(-(c - centre_j)^2 / temperature)

    Args:
        values: Any shape.
        num_bins: Number of bins.
        temperature: Softness; towards 0 the bins become hard.
        lower: Where the first bin begins.

    Returns:
        Shape `values.shape + (num_bins,)`, summing to 1 over the last axis.
    """
    if num_bins == 1:
        return ops.ones_like(ops.expand_dims(values, -1))
    width = (1.0 - lower) / num_bins
    centres = lower + width * (ops.arange(num_bins, dtype="float32") + 0.5)
    distance = ops.expand_dims(values, -1) - centres
    return ops.softmax(ops.square(distance) * (-1.0 / temperature), axis=-1)


def binned_error(predicted, outcome, membership, weight, norm, cross_replica):
    """Sum over bins of mass x |accuracy - confidence|^norm (equation 11).

    Args:
        predicted: Predicted probabilities `(batch, columns)`.
        outcome: 1.0 where the event happened, else 0.0, of the same shape.
        membership: `(batch, columns, bins)`.
        weight: `(batch,)`.
        norm: Exponent, at least 1.
        cross_replica: Whether the batch is the global one.

    Returns:
        `(mean, scale)` for `finish`: the sum is `mean * scale**norm`.
    """
    shared = _reducer(cross_replica)
    membership = membership * _per_row(weight)
    mass = shared(ops.sum(membership, axis=0))
    excess = ops.expand_dims(predicted - outcome, -1)
    excess = shared(ops.sum(membership * excess, axis=0))
    gap = ops.abs(excess) / ops.maximum(mass, SMALLEST_MASS)
    total = shared(ops.sum(weight)) * predicted.shape[1]
    powers, scale = _powers(gap, norm)
    return ops.divide_no_nan(ops.sum(mass * powers), total), scale


def label_binned_error(
    predicted, outcome, membership, weight, norm, cross_replica
):
    """Mean of membership x |bin accuracy - confidence|^norm (equation 12).

    Arguments and result as in `binned_error`.
    """
    shared = _reducer(cross_replica)
    membership = membership * _per_row(weight)
    mass = shared(ops.sum(membership, axis=0))
    hits = shared(ops.sum(membership * ops.expand_dims(outcome, -1), axis=0))
    accuracy = hits / ops.maximum(mass, SMALLEST_MASS)
    gap = ops.abs(accuracy - ops.expand_dims(predicted, -1))
    total = shared(ops.sum(weight)) * predicted.shape[1]
    powers, scale = _powers(gap, norm)
    mean = ops.divide_no_nan(shared(ops.sum(membership * powers)), total)
    return mean, scale


def smooth_membership(membership):
    """Mixes in a little of every bin, as the authors' released code does."""
    uniform = MEMBERSHIP_SMOOTHING / membership.shape[-1]
    return (1.0 - MEMBERSHIP_SMOOTHING) * membership + uniform


def finish(mean, scale, norm, root):
    """The error, from what an estimator returned.

    With `root` it is `scale * mean**(1/norm)`, whose gradient is 0 instead of
    infinite where the error is 0.
    """
    if not root:
        return mean * scale**norm
    if norm == 1:
        return mean * scale
    # Asked this way round, NaN stays NaN and does not look like perfection.
    is_zero = mean <= 0
    safe = ops.where(is_zero, 1.0, mean)
    rooted = ops.sqrt(safe) if norm == 2 else ops.power(safe, 1.0 / norm)
    return ops.where(is_zero, 0.0, rooted) * scale


def _powers(gap, norm):
    """`(powers, scale)` with `gap**norm == powers * scale**norm`.

    A high power of a small gap underflows float32. Dividing by the largest gap
    first prevents it, and since root(sum) is homogeneous, that divisor needs no
    gradient of its own.
    """
    if norm == 1:
        return gap, 1.0
    if norm == 2:
        return ops.square(gap), 1.0
    scale = ops.stop_gradient(ops.max(gap))
    return ops.power(ops.divide_no_nan(gap, scale), norm), scale


def _per_row(weight):
    return ops.reshape(weight, (-1, 1, 1))


def _reducer(cross_replica):
    return sum_over_replicas if cross_replica else lambda tensor: tensor
