"""Runs as points, the means of objectives as larger ones."""

import collections
import math

import numpy as np

from caltrain_tf.figures import layout
from caltrain_tf.figures.colors import objective_style
from caltrain_tf.figures.labels import metric_factor
from caltrain_tf.figures.labels import metric_label
from caltrain_tf.figures.labels import objective_label


def draw_runs(ax, rows, x, y):
    """Draws two metrics of runs against each other.

    Args:
        ax: Where to.
        rows: Result rows of one setting. Those in which a metric is missing,
            None or NaN are left out.
        x: The metric to the right.
        y: The metric upwards.

    Returns:
        From objectives to their means `(x, y)`, in the units drawn.
    """
    layout.check_rows("rows", rows)
    points = collections.defaultdict(list)
    for row in rows:
        pair = row.get(x), row.get(y)
        if not any(value is None or math.isnan(value) for value in pair):
            points[row["objective"]].append(pair)
    if not points:
        raise ValueError(
            f"`rows` must hold both metrics. Received: metrics {x!r} and {y!r}"
        )
    factors = metric_factor(x), metric_factor(y)
    means = {}
    for objective, pairs in points.items():
        runs = np.array(pairs, float) * factors
        style = objective_style(objective).line() | {"linestyle": "none"}
        ax.plot(*runs.T, markersize=3.5, alpha=0.6, **style)
        means[objective] = runs.mean(axis=0)
        ax.plot(
            *means[objective],
            markersize=9,
            label=objective_label(objective),
            **style,
        )
    ax.set(xlabel=metric_label(x), ylabel=metric_label(y))
    ax.grid(alpha=0.3)
    return means
