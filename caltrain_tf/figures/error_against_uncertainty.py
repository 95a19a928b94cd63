"""ECE against average uncertainty."""

from caltrain_tf.figures import layout
from caltrain_tf.figures.run_points import draw_runs


def error_against_uncertainty(rows, metric="ece", title=None):
    """Draws an error of runs against their mean entropy.

    A small point is a run, a large one the mean over the runs of an objective.
    Low error at low uncertainty is what one hopes for.

    Args:
        rows: Result rows of one setting, a dictionary a run: `objective`,
            `average_uncertainty` and the metric. Those without are left out.
        metric: Which error.
        title: What is written above.

    Returns:
        A `matplotlib.figure.Figure`.

    Example:
        >>> import caltrain_tf as ct
        >>> rows = [
        ...     {"objective": "nll", "average_uncertainty": 0.2, "ece": 0.1},
        ...     {"objective": "focal", "average_uncertainty": 0.6, "ece": 0.05},
        ... ]
        >>> figure = ct.figures.error_against_uncertainty(rows)
        >>> [text.get_text() for text in figure.legends[0].texts]
        ['NLL', 'Focal']
    """
    figure, ax = layout.new_axes(layout.WIDTH, 3.8)
    draw_runs(ax, rows, "average_uncertainty", metric)
    ax.set_title(title or "")
    layout.legend_below(ax)
    return figure
