"""Penalties by cross-validation."""

import math

import numpy as np

# A path ends when this many weaker penalties in a row were no better.
PATIENCE = 2
# Parameters x rows above which one held-out fold has to be enough.
LARGE_PROBLEM = 1e7


def choose(rows, num_rows, path, fit, likelihood, start, num_folds):
    """The penalty on a path with the smallest held-out likelihood.

    Args:
        rows: What to fit to.
        num_rows: How many rows there are.
        path: Penalties, the strongest first.
        fit: Function of `(rows, penalty, start)` that returns parameters.
        likelihood: Function of `(rows, parameters)`.
        start: Parameters where the strongest one starts; the others start
            where the one before them ended.
        num_folds: Of the cross-validation.

    Returns:
        `(penalty, likelihood)` of the best on the path.
    """
    num_folds = min(num_folds, num_rows)
    if num_folds < 2:
        return path[0], math.inf
    used = 1 if float(num_rows) * start.size > LARGE_PROBLEM else num_folds
    folds = [
        (rows.fold(i, num_folds, False), rows.fold(i, num_folds, True))
        for i in range(used)
    ]
    starts = [start] * used
    best, best_value, worse = None, math.inf, 0
    for penalty in path:
        values = []
        for i, (training, held_out) in enumerate(folds):
            starts[i] = fit(training, penalty, starts[i])
            values.append(likelihood(held_out, starts[i]))
        value = float(np.mean(values))
        if value < best_value:
            best, best_value, worse = penalty, value, 0
        else:
            worse += 1
            if worse == PATIENCE:
                break
    return best, best_value
