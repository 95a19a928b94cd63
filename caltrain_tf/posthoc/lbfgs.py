"""L-BFGS for smooth convex functions that are well conditioned.

SciPy's L-BFGS-B spends most of a small problem's time in threaded linear
algebra and, at the limit of float32, up to twenty evaluations on a line search
that cannot succeed. With the curvature near the identity, a step of length 1
and its halves are enough.
"""

from collections import deque

import numpy as np

MEMORY = 10
MAX_HALVINGS = 10
# How much of the decrease that the slope promises a step has to bring.
SUFFICIENT = 1e-4


def minimize(value_and_gradient, start, *, max_iterations, tolerance):
    """Minimises a convex function.

    Args:
        value_and_gradient: Function of an array that returns both.
        start: The array to start at.
        max_iterations: How many steps to make at most.
        tolerance: Relative decrease of the value at which to end.

    Returns:
        The array of the smallest value found.

    Example:
        >>> minimize(
        ...     lambda x: (np.sum((x - 3.0) ** 2), 2 * (x - 3.0)),
        ...     np.zeros(2),
        ...     max_iterations=10,
        ...     tolerance=1e-12,
        ... ).round(4).tolist()
        [3.0, 3.0]
    """
    point = start
    value, gradient = value_and_gradient(point)
    history = deque(maxlen=MEMORY)
    for _ in range(max_iterations):
        direction = -_times_inverse_hessian(gradient, history)
        slope = _dot(gradient, direction)
        step = 1.0
        for _ in range(MAX_HALVINGS):
            next_point = point + step * direction
            next_value, next_gradient = value_and_gradient(next_point)
            if next_value <= value + SUFFICIENT * step * slope:
                break
            step /= 2
        else:
            # No lower value can be told apart by rounding.
            break
        change = next_gradient - gradient
        moved = next_point - point
        product = _dot(change, moved)
        if product > 0:
            history.append((moved, change, product))
        decrease = value - next_value
        point, value, gradient = next_point, next_value, next_gradient
        if decrease <= tolerance * abs(value):
            break
    return point


def _times_inverse_hessian(gradient, history):
    """The two-loop recursion."""
    result = gradient.copy()
    weights = []
    for moved, change, product in reversed(history):
        weight = _dot(moved, result) / product
        result -= weight * change
        weights.append(weight)
    if history:
        _, change, product = history[-1]
        result *= product / _dot(change, change)
    for (moved, change, product), weight in zip(
        history, reversed(weights), strict=True
    ):
        result += (weight - _dot(change, result) / product) * moved
    return result


def _dot(a, b):
    # BLAS would start threads for it, which costs more than it saves.
    return float(np.sum(a * b))
