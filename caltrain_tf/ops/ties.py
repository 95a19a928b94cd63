"""Sums over ties: sorted points of equal value."""

from keras import ops


def is_first_of_ties(points):
    """Whether a point is the first one of its value, `(n,)`.

    Args:
        points: `(n,)`, sorted in either direction.
    """
    is_first = points[1:] != points[:-1]
    return ops.concatenate([ops.ones_like(points[:1], "bool"), is_first])


def sums_over_ties(is_first, values):
    """Sums `values`, for each point, over all points equal to it.

    Args:
        is_first: Result of `is_first_of_ties`, `(n,)`.
        values: `(n, columns)`, in the order of the points.

    Returns:
        `(n, columns)`. If `values` is 0 at all but one of several equal points,
        all of them get the entry of that point.
    """
    group = ops.cumsum(ops.cast(is_first, "int32")) - 1
    count = values.shape[0]
    count = count if count is not None else ops.shape(values)[0]
    sums = ops.segment_sum(values, group, num_segments=count)
    return ops.take(sums, group, axis=0)
