"""How a reliability curve is drawn."""

import math

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from caltrain_tf.figures.layout import GREY

# Of Okabe and Ito's palette, told apart with any colour vision.
_BLUE, _ORANGE = "#0072B2", "#E69F00"
# Of the main axes' height: where the histogram starts, and its height.
_HISTOGRAM_BOX = (0, -0.34, 1, 0.26)
# Around the axes and their histogram, in inches.
_LEFT, _RIGHT, _BOTTOM, _TOP = 0.65, 0.18, 0.66, 0.34


def new_reliability_axes(count, columns=None, width=3.0, header=0.0):
    """Axes of a new figure, each with room for a histogram below it.

    Args:
        count: How many.
        columns: How many side by side; all by default.
        width: Of each, in inches.
        header: Height above all of them, in inches.

    Returns:
        A list of axes.
    """
    columns = min(columns or count, count)
    rows = math.ceil(count / columns)
    height = 0.943 * width
    around = _BOTTOM - _HISTOGRAM_BOX[1] * height + _TOP
    total_width = columns * (_LEFT + width + _RIGHT)
    total_height = header + rows * (height + around)
    # No pyplot: it would keep every figure of a long run.
    figure = Figure(figsize=(total_width, total_height), dpi=120)
    FigureCanvasAgg(figure)
    # By hand: automatic layouts take no account of the histograms' labels.
    figure.subplots_adjust(
        left=_LEFT / total_width,
        right=1 - _RIGHT / total_width,
        bottom=(around - _TOP) / total_height,
        top=1 - (header + _TOP) / total_height,
        wspace=(_LEFT + _RIGHT) / width,
        hspace=around / height,
    )
    return [
        figure.add_subplot(rows, columns, index + 1) for index in range(count)
    ]


def draw_reliability(ax, curve):
    """Draws a reliability diagram, without a legend.

    Args:
        ax: Where to; the histogram is placed below.
        curve: As of `metrics.reliability_curve`, of equal-width bins.
    """
    _draw_bars(ax, curve)
    _draw_histogram(ax, curve)


def _draw_bars(ax, curve):
    num_bins = len(curve.count)
    width = 1 / num_bins
    left = np.arange(num_bins) * width
    accuracy = np.nan_to_num(curve.accuracy)
    gap = np.nan_to_num(curve.confidence - curve.accuracy)
    style = {"width": width, "align": "edge", "linewidth": 0.8}
    ax.bar(
        left,
        accuracy,
        color=_BLUE,
        edgecolor="white",
        label="accuracy",
        **style,
    )
    ax.bar(
        left,
        gap,
        bottom=accuracy,
        facecolor=to_rgba(_ORANGE, 0.35),
        edgecolor=_ORANGE,
        hatch="///",
        label="gap to confidence",
        **style,
    )
    ax.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1)
    ax.set(xlim=(0, 1), ylim=(0, 1), ylabel="Accuracy")
    ax.tick_params(labelbottom=False)


def _draw_histogram(ax, curve):
    num_bins = len(curve.count)
    below = ax.inset_axes(_HISTOGRAM_BOX, sharex=ax)
    total = curve.count.sum()
    left = np.arange(num_bins) / num_bins
    below.bar(
        left,
        curve.count / total,
        width=1 / num_bins,
        align="edge",
        color="#CCCCCC",
        edgecolor="white",
    )
    lines = ((curve.confidence, _ORANGE, "-"), (curve.accuracy, _BLUE, "--"))
    for values, color, linestyle in lines:
        mean = np.nansum(values * curve.count) / total
        below.axvline(mean, color=color, linestyle=linestyle)
    below.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    below.set(xlabel="Confidence", ylabel="Share")
