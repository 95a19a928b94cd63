"""Running sums over sorted points, the same for points of equal value."""

from keras import ops


def is_first_of_ties(points):
    """Whether a point is the first one of its value, `(n,)`.

    Args:
        points: `(n,)`, sorted in either direction.
    """
    is_first = points[1:] != points[:-1]
    return ops.concatenate([ops.ones_like(points[:1], "bool"), is_first])


def sums_over_ties(is_first, values):
    """For each point the sum of `values` over all points of its value.

    Args:
        is_first: Result of `is_first_of_ties`, `(n,)`.
        values: `(n, columns)`, in the order of the points.

    Returns:
        `(n, columns)`; what belongs to one point of each value, with zeros at
        the others, is handed to all of them.
    """
    group = ops.cumsum(ops.cast(is_first, "int32")) - 1
    count = values.shape[0]
    count = count if count is not None else ops.shape(values)[0]
    sums = ops.segment_sum(values, group, num_segments=count)
    return ops.take(sums, group, axis=0)
