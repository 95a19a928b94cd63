"""Quadratic forms of the Laplacian kernel in O(N log N)."""

from keras import ops


def laplacian_quadratic_form(points, coefficients, width):
    r"""sum_ij e_i e_j exp(-|x_i - x_j| / width) without the N x N matrix.

    Between sorted points the kernel factors, exp(-x_i/w) exp(x_j/w) for
    x_j <= x_i, so that running sums give every row of the product in one pass
    over the points to the left and one over those to the right. They give the
    gradient too:

        d/de_i = 2 sum_j e_j k_ij
        d/dx_i = 2 e_i (right_i - left_i) / w

    where right_i and left_i are the parts of sum_j e_j k_ij with x_j > x_i and
    x_j < x_i. Tied points do not pull at each other, as with |x| = 0.

    Args:
        points: x, `(n,)`, in [0, 1].
        coefficients: e, `(n,)`.
        width: At least 0.01, so that exp(x/w) stays inside float32.

    Returns:
        A scalar.
    """
    order = ops.argsort(ops.stop_gradient(points))
    points = ops.take(points, order)
    coefficients = ops.take(coefficients, order)
    x = ops.stop_gradient(points)
    e = ops.stop_gradient(coefficients)

    # Centred, so that neither factor leaves the range of float32.
    rising = ops.exp((x - 0.5) / width)
    falling = ops.exp((0.5 - x) / width)
    # Sums up to and including each point, from the left and from the right.
    # (A total minus one of them would cancel.)
    from_left = ops.cumsum(e * rising)
    from_right = ops.flip(ops.cumsum(ops.flip(e * falling)))
    zero = ops.zeros_like(e[:1])
    before = ops.concatenate([zero, from_left[:-1]])
    after = ops.concatenate([from_right[1:], zero])
    row = e + falling * before + rising * after
    value = ops.sum(e * row)

    left, right = _strictly_beside(x, before, after)
    left, right = left * falling, right * rising
    # A term of value 0 whose gradient is the one above.
    with_gradient = ops.sum(2.0 * row * coefficients)
    pull = ops.sum(2.0 / width * e * (right - left) * points)
    with_gradient = with_gradient + pull
    return value + (with_gradient - ops.stop_gradient(with_gradient))


def _strictly_beside(x, before, after):
    """Running sums with the ties of each point left out.

    Args:
        x: Sorted points `(n,)`.
        before: Sums over the points ahead of each one in the order.
        after: Sums over the points behind each one.
    """
    differs = ops.cast(x[1:] != x[:-1], "int32")
    one = ops.ones_like(x[:1], dtype="int32")
    is_first = ops.concatenate([one, differs])
    is_last = ops.concatenate([differs, one])
    group = ops.cumsum(is_first) - 1
    # One element of each group is not 0, so that its sum is that element: the
    # sum before the group's first point, and the sum after its last one.
    borders = ops.stack(
        [
            ops.where(is_first == 1, before, 0.0),
            ops.where(is_last == 1, after, 0.0),
        ],
        axis=1,
    )
    count = x.shape[0] if x.shape[0] is not None else ops.shape(x)[0]
    borders = ops.segment_sum(borders, group, num_segments=count)
    borders = ops.take(borders, group, axis=0)
    return borders[:, 0], borders[:, 1]
