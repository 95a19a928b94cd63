"""Which points no other point beats."""

import numpy as np


def pareto_front(points):
    """Finds the points of which none is better in every respect.

    A point is beaten by another that is at least as low in every column and
    lower in one. Points that are the same do not beat each other.

    Args:
        points: `(N, D)`, lower is better; hand over minus what should be high.

    Returns:
        A boolean array `(N,)`.

    Example:
        >>> pareto_front([[1, 5], [2, 3], [3, 4], [4, 1]]).tolist()
        [True, True, False, True]
    """
    points = np.asarray(points, float)
    if points.ndim != 2 or np.isnan(points).any():
        raise ValueError(
            "`points` must be (points, columns) without NaN. "
            f"Received: points={points!r}"
        )
    first, second = points[:, None], points[None]
    beaten_by = (second <= first).all(-1) & (second < first).any(-1)
    return ~beaten_by.any(axis=1)
