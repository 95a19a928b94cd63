"""Sums of values below and at each of the sorted points."""

from keras import ops


def sums_below_and_at(points, values):
    """For each point the sums of `values` below it and at it.

    Equal points have the same sums: what lies strictly below their value, and
    what lies at it, themselves included. No N x N comparison is made.

    Args:
        points: `(n,)`, sorted, in either direction; "below" is before.
        values: `(n, columns)`, in the order of `points`.

    Returns:
        The pair of both, `(n, columns)`.
    """
    before = ops.cumsum(values, axis=0)
    before = ops.concatenate([ops.zeros_like(values[:1]), before[:-1]])
    # Points of one value form a group. What lies before it is the running sum
    # at its first point; the others add 0 to that.
    is_first = ops.concatenate(
        [ops.ones_like(points[:1], "bool"), points[1:] != points[:-1]]
    )
    group = ops.cumsum(ops.cast(is_first, "int32")) - 1
    count = points.shape[0]
    count = count if count is not None else ops.shape(points)[0]
    first = ops.where(ops.expand_dims(is_first, -1), before, 0.0)
    sums = ops.segment_sum(
        ops.concatenate([first, values], axis=1), group, num_segments=count
    )
    return ops.split(ops.take(sums, group, axis=0), 2, axis=1)
