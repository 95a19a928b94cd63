"""Accuracy against ECE, and the objectives that no other beats."""

import numpy as np

from caltrain_tf.figures import layout
from caltrain_tf.figures.pareto_front import pareto_front
from caltrain_tf.figures.run_points import draw_runs


def accuracy_error_tradeoff(rows, metric="ece", title=None):
    """Draws an error of runs against their accuracy, with the Pareto front.

    A small point is a run, a large one the mean over the runs of an objective.
    The line is the front of the means: to the left of it and above, every
    mean is beaten by another in accuracy, error or both.

    Args:
        rows: Result rows of one setting, a dictionary a run: `objective`,
            `accuracy` and the metric. Those without are left out.
        metric: Which error.
        title: What is written above.

    Returns:
        A `matplotlib.figure.Figure`.

    Example:
        >>> import caltrain_tf as ct
        >>> rows = [
        ...     {"objective": "nll", "accuracy": 0.9, "ece": 0.1},
        ...     {"objective": "focal", "accuracy": 0.8, "ece": 0.05},
        ...     {"objective": "mse", "accuracy": 0.7, "ece": 0.2},
        ... ]
        >>> figure = ct.figures.accuracy_error_tradeoff(rows)
        >>> figure.axes[0].lines[-1].get_xdata().tolist()
        [80.0, 90.0]
    """
    figure, ax = layout.new_axes(layout.WIDTH, 3.8)
    means = np.array(list(draw_runs(ax, rows, "accuracy", metric).values()))
    front = means[pareto_front(means * [-1, 1])]
    accuracy, error = front[np.argsort(front[:, 0])].T
    ax.plot(
        accuracy,
        error,
        # Up to an accuracy, the error that has to be accepted for it.
        drawstyle="steps-pre",
        color="black",
        linewidth=1,
        zorder=1,
        label="Pareto front",
    )
    ax.set_title(title or "")
    layout.legend_below(ax)
    return figure
