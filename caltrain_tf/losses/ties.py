"""Running sums over sorted points, and sums over points of equal value.

float32 loses digits when a sum of a million terms is taken one after the other.
Both kinds of sums are therefore taken in blocks of `BLOCK` points and then over
the blocks, in their gradients too.
"""

from keras import ops

BLOCK = 1024


def running_sum_before(values):
    """The sum of all earlier values at each place, `(n,)`.

    Args:
        values: `(n,)`.
    """
    count = _length(values)
    if isinstance(count, int) and count <= BLOCK:
        return _shifted(ops.cumsum(values))
    padding = ops.zeros((-count % BLOCK,), values.dtype)
    blocks = ops.reshape(ops.concatenate([values, padding]), (-1, BLOCK))
    blocks = ops.cumsum(blocks, axis=1)
    before = _shifted(ops.cumsum(blocks[:, -1]))
    running = ops.reshape(blocks + before[:, None], (-1,))
    return _shifted(running[:count])


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
    count = _length(values)
    group = ops.cumsum(ops.cast(is_first, "int32")) - 1
    starts_part = ops.logical_or(is_first, ops.arange(count) % BLOCK == 0)
    part = ops.cumsum(ops.cast(starts_part, "int32")) - 1
    group_of_part = ops.segment_sum(
        ops.where(starts_part, group, 0), part, num_segments=count
    )
    sums = ops.segment_sum(values, part, num_segments=count)
    sums = ops.segment_sum(sums, group_of_part, num_segments=count)
    return ops.take(ops.take(sums, group_of_part, axis=0), part, axis=0)


def _shifted(running):
    """Running sums without their last terms, which are not subtracted.

    A difference of running sums would lose digits.
    """
    return ops.concatenate([ops.zeros_like(running[:1]), running[:-1]])


def _length(values):
    length = values.shape[0]
    return length if length is not None else ops.shape(values)[0]
