"""Soft bins: every prediction belongs to every bin, and most to the nearest.

The calibration errors here are the paper's equations 11 and 12 for any number
of columns: one column of confidences for the top-label error, one column per
class for the marginal error.
"""

import math

from keras import ops

from caltrain_tf.replicas import sum_over_replicas

# The smallest bin mass that is divided by, in examples.
SMALLEST_MASS = 1e-5
# Share of a uniform membership that the authors' released code mixes in.
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


def binned_error(
    predicted, outcome, weight, bins, norm, cross_replica, smoothed=False
):
    """Sum over bins of mass x |accuracy - confidence|^norm (equation 11).

    Args:
        predicted: Predicted probabilities `(n, columns)`.
        outcome: 1.0 where the event happened, else 0.0, of the same shape.
        weight: `(n,)`.
        bins: The triple of number of bins, temperature and lower end.
        norm: Exponent, at least 1.
        cross_replica: Whether the batch is the global one.
        smoothed: Whether to mix in a uniform membership, as the authors'
            released code does for equation 12; has no effect here.

    Returns:
        `(mean, scale)` for `finish`: the sum is `mean * scale**norm`.
    """
    excess = predicted - outcome
    if predicted.shape[1] > 1 and _powers_stay_in_range(*bins):
        sums = _sums_by_powers(predicted, excess, weight, bins)
    else:
        membership = soft_membership(predicted, *bins) * _per_row(weight)
        excess = membership * ops.expand_dims(excess, -1)
        sums = ops.sum(ops.stack([membership, excess]), axis=1)
    sums = _reducer(cross_replica)(sums)
    mass = sums[0]
    gap = ops.abs(sums[1]) / ops.maximum(mass, SMALLEST_MASS)
    powers, scale = _powers(gap, norm)
    # The memberships of an example sum to 1, so that the total is a constant.
    total = ops.stop_gradient(ops.sum(mass))
    return ops.divide_no_nan(ops.sum(mass * powers), total), scale


def label_binned_error(
    predicted, outcome, weight, bins, norm, cross_replica, smoothed=False
):
    """Mean of membership x |bin accuracy - confidence|^norm (equation 12).

    Arguments and result as in `binned_error`.
    """
    shared = _reducer(cross_replica)
    membership = soft_membership(predicted, *bins)
    if smoothed:
        uniform = MEMBERSHIP_SMOOTHING / membership.shape[-1]
        membership = (1.0 - MEMBERSHIP_SMOOTHING) * membership + uniform
    membership = membership * _per_row(weight)
    mass = shared(ops.sum(membership, axis=0))
    hits = shared(ops.sum(membership * ops.expand_dims(outcome, -1), axis=0))
    accuracy = hits / ops.maximum(mass, SMALLEST_MASS)
    gap = ops.abs(accuracy - ops.expand_dims(predicted, -1))
    total = shared(ops.sum(weight)) * predicted.shape[1]
    powers, scale = _powers(gap, norm)
    mean = ops.divide_no_nan(shared(ops.sum(membership * powers)), total)
    return mean, scale


def finish(mean, scale, norm, root):
    """Returns the error from the result of an estimator.

    With `root` it is `scale * mean**(1/norm)`, whose gradient is 0 instead of
    infinite where the error is 0.
    """
    if not root:
        return mean * scale**norm
    if norm == 1:
        return mean * scale
    # With this comparison NaN stays NaN and does not become an error of 0.
    is_zero = mean <= 0
    safe = ops.where(is_zero, 1.0, mean)
    rooted = ops.sqrt(safe) if norm == 2 else ops.power(safe, 1.0 / norm)
    return ops.where(is_zero, 0.0, rooted) * scale


def _powers(gap, norm):
    """`(powers, scale)` with `gap**norm == powers * scale**norm`.

    A high power of a small gap underflows float32. Dividing by the largest gap
    first prevents this, and since root(sum) is homogeneous, that divisor needs
    no gradient of its own.
    """
    if norm == 1:
        return gap, 1.0
    if norm == 2:
        return ops.square(gap), 1.0
    scale = ops.stop_gradient(ops.max(gap))
    return ops.power(ops.divide_no_nan(gap, scale), norm), scale


def _powers_stay_in_range(num_bins, temperature, lower):
    """Whether `_sums_by_powers` can neither overflow nor underflow float32."""
    width = (1.0 - lower) / num_bins
    reference = num_bins // 2
    centre = lower + width * (reference + 0.5)
    largest = 2.0 * max(centre, 1.0 - centre) * reference * width / temperature
    return largest < 80.0 and num_bins <= 64


def _sums_by_powers(predicted, excess, weight, bins):
    """The bins' masses and sums of `excess`, with one exponential per value.

    With the offsets o_j = i w of the bins' centres from the middle centre m,

        u_j = g_j y^i / sum_j g_j y^i,  y = exp(2 (c - m) w / T),
        g_j = exp(-o_j^2 / T)

    so that all memberships are powers of one number and their sums over j are
    polynomials in it. No array of size n x columns x bins is made: for 1,000
    classes, a loss with its gradient takes a quarter of the time.

    Args:
        predicted: c, `(n, columns)`.
        excess: `(n, columns)`.
        weight: `(n,)`.
        bins: As in `binned_error`.

    Returns:
        `(2, bins, columns)`: sums over n of w u_j and of w u_j excess.
    """
    num_bins, temperature, lower = bins
    width = (1.0 - lower) / num_bins
    reference = num_bins // 2
    centre = lower + width * (reference + 0.5)
    offsets = [width * (j - reference) for j in range(num_bins)]
    factors = [math.exp(-(o**2) / temperature) for o in offsets]
    slope = 2.0 * width / temperature

    def polynomial(coefficients, rising, falling):
        above = below = 0.0
        for coefficient in reversed(coefficients[reference + 1 :]):
            above = (above + coefficient) * rising
        for coefficient in coefficients[:reference]:
            below = (below + coefficient) * falling
        return above + coefficients[reference] + below

    def bases(predicted):
        rising = ops.exp((predicted - centre) * slope)
        falling = 1.0 / rising
        total = polynomial(factors, rising, falling)
        return rising, falling, 1.0 / total

    @ops.custom_gradient
    def sums(predicted, excess, weight):
        rising, falling, share = bases(predicted)
        power = share * ops.expand_dims(weight, -1)
        powers = [power]
        for _ in range(reference):
            powers.insert(0, powers[0] * falling)
        for _ in range(num_bins - 1 - reference):
            powers.append(powers[-1] * rising)
        value = ops.stack(
            [
                ops.stack([ops.sum(p, axis=0) for p in powers]),
                ops.stack([ops.sum(p * excess, axis=0) for p in powers]),
            ]
        )

        def gradient(*args, upstream=None):
            if upstream is None:
                (upstream,) = args
            # Computed again from the arguments, so that the gradient can be
            # differentiated too. XLA computes it only once.
            rising, falling, share = bases(predicted)
            weighted = [
                [f * row for f, row in zip(factors, rows, strict=True)]
                for rows in (
                    ops.unstack(half, num_bins, axis=0)
                    for half in ops.unstack(upstream, 2, axis=0)
                )
            ]

            def mean(coefficients, moment=0):
                terms = [
                    c * o**moment
                    for c, o in zip(coefficients, offsets, strict=True)
                ]
                return share * polynomial(terms, rising, falling)

            of_mass, of_excess = weighted
            row = ops.expand_dims(weight, -1)
            direct = mean(of_excess)
            # du_j / dc = 2/T u_j (o_j - mean offset).
            first = mean(of_mass, 1) + excess * mean(of_excess, 1)
            zeroth = mean(of_mass) + excess * direct
            pull = first - mean(factors, 1) * zeroth
            return (
                row * pull * (2.0 / temperature),
                row * direct,
                ops.zeros_like(weight),
            )

        scale = ops.reshape(ops.convert_to_tensor(factors), (1, -1, 1))
        return value * scale, gradient

    return sums(predicted, excess, weight)


def _per_row(weight):
    return ops.reshape(weight, (-1, 1, 1))


def _reducer(cross_replica):
    return sum_over_replicas if cross_replica else lambda tensor: tensor
