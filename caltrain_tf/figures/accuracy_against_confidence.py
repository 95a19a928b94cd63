"""Accuracy against confidence, one line an objective."""

from caltrain_tf.figures import layout
from caltrain_tf.figures.colors import objective_style
from caltrain_tf.figures.labels import objective_label
from caltrain_tf.figures.reliability_rows import curves_by_objective


def accuracy_against_confidence(
    rows, calibrator="none", num_bins=15, title=None
):
    """Draws the accuracy in each bin against its mean confidence.

    Lines below the diagonal are of over-confident networks, lines above it of
    under-confident ones. Points are means over the predictions of all seeds;
    empty bins have none.

    Args:
        rows: Reliability rows of one setting, a dictionary a bin of a run:
            `objective`, `seed`, `calibrator`, `bin` (from 0), `confidence`,
            `accuracy` and `count`.
        calibrator: Of which calibrator: `none`, `ts` or `ts_sb_ece`.
        num_bins: Number of bins that the rows are of.
        title: What is written above.

    Returns:
        A `matplotlib.figure.Figure`.

    Example:
        >>> import caltrain_tf as ct
        >>> rows = [
        ...     {"objective": "nll", "seed": 0, "calibrator": "none", "bin": b,
        ...      "confidence": b / 2 + 0.3, "accuracy": b / 2, "count": 9}
        ...     for b in (0, 1)
        ... ]
        >>> figure = ct.figures.accuracy_against_confidence(rows, num_bins=2)
        >>> [line.get_label() for line in figure.axes[0].lines]
        ['calibrated', 'NLL']
    """
    curves = curves_by_objective(rows, calibrator, num_bins)
    figure, ax = layout.new_axes(layout.WIDTH, 4.4)
    ax.plot(
        [0, 1],
        [0, 1],
        color=layout.GREY,
        linewidth=1,
        linestyle="--",
        label="calibrated",
    )
    for objective, curve in curves.items():
        filled = curve.count > 0
        ax.plot(
            curve.confidence[filled],
            curve.accuracy[filled],
            markersize=4,
            linewidth=1.3,
            label=objective_label(objective),
            **objective_style(objective).line(),
        )
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="Confidence", ylabel="Accuracy")
    ax.set_title(title or "")
    ax.grid(alpha=0.3)
    layout.legend_below(ax)
    return figure
