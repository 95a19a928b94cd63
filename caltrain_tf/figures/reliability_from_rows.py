"""Reliability diagrams with no predictions at hand."""

import numpy as np

from caltrain_tf.figures.labels import objective_label
from caltrain_tf.figures.reliability_drawing import draw_reliability
from caltrain_tf.figures.reliability_drawing import new_reliability_axes
from caltrain_tf.figures.reliability_rows import curves_by_objective

# Under text that may lie on bars.
_BOX = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1}


def reliability_from_rows(
    rows, calibrator="none", errors=None, num_bins=15, columns=2
):
    """Draws a reliability diagram of every objective.

    They are those of `reliability_diagram` of the predictions of all seeds
    together.

    Args:
        rows: Reliability rows of one setting, a dictionary a bin of a run:
            `objective`, `seed`, `calibrator`, `bin` (from 0), `confidence`,
            `accuracy` and `count`.
        calibrator: Of which calibrator: `none`, `ts` or `ts_sb_ece`.
        errors: From objectives to the ECE that is written in the corner, such
            as the means of `evaluation.summarize_results`. Where there is
            none, it is the l2 error of the bins drawn: "equal-width ECE".
        num_bins: Number of bins that the rows are of.
        columns: How many diagrams side by side.

    Returns:
        A `matplotlib.figure.Figure`.

    Example:
        >>> import caltrain_tf as ct
        >>> rows = [
        ...     {"objective": name, "seed": 0, "calibrator": "none", "bin": b,
        ...      "confidence": b / 2 + 0.3, "accuracy": b / 2, "count": 9}
        ...     for b in (0, 1)
        ...     for name in ("nll", "focal+sb_ece")
        ... ]
        >>> figure = ct.figures.reliability_from_rows(rows, num_bins=2)
        >>> [ax.get_title() for ax in figure.axes]
        ['NLL', 'Focal + SB-ECE']
    """
    curves = curves_by_objective(rows, calibrator, num_bins)
    axes = new_reliability_axes(len(curves), columns, width=1.9, header=0.3)
    for ax, (objective, curve) in zip(axes, curves.items(), strict=True):
        if errors is not None and objective in errors:
            corner = f"ECE {100 * errors[objective]:.2f}%"
        else:
            corner = f"equal-width ECE {100 * _error_of_bins(curve):.2f}%"
        draw_reliability(ax, curve)
        ax.text(0.04, 0.96, corner, va="top", fontsize=9, bbox=_BOX)
        ax.set_title(objective_label(objective), fontsize=8)
    figure = axes[0].figure
    handles, _ = axes[0].get_legend_handles_labels()
    # Once for all: in each of them it would lie on the bars.
    figure.legend(
        handles=handles, loc="upper center", ncols=2, frameon=False, fontsize=8
    )
    return figure


def _error_of_bins(curve):
    weights = curve.count / curve.count.sum()
    return np.sqrt(
        np.nansum(weights * (curve.confidence - curve.accuracy) ** 2)
    )
