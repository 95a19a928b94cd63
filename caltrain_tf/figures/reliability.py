"""Accuracy against confidence: reliability diagrams and curves."""

import math

import numpy as np
from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from caltrain_tf import checks, inputs
from caltrain_tf.figures import style
from caltrain_tf.metrics import binned

_BLUE, _ORANGE = style.OKABE_ITO[:2]
_GAP = dict(facecolor=to_rgba(_ORANGE, 0.35), edgecolor=_ORANGE, hatch="///")
# Bins with fewer predictions are drawn faint: the standard error of their
# accuracy can be 9 points or more.
FEW = 30
_FAINT = 0.25
# Left, bottom, width and height of the histogram, relative to the main axes.
_HISTOGRAM_BOX = (0, -0.34, 1, 0.26)
# Axes, the margins around them and their histogram, and the legend, in inches.
_WIDTH, _HEIGHT, _LEGEND = 3.0, 2.83, 0.45
_LEFT, _RIGHT, _BOTTOM, _TOP = 0.65, 0.18, 0.62, 0.45


def reliability_diagram(
    probs,
    labels,
    num_bins=15,
    from_logits=False,
    ax=None,
    title=None,
    *,
    positive=False,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
):
    """Draws the accuracy of predictions against their confidence.

    A bar shows the accuracy of the predictions whose confidence is in its part
    of [0, 1], and the hatched gap extends to their mean confidence. Bars of
    fewer than 30 predictions are faint. The histogram below shows the share of
    predictions in each bin, with the mean confidence and the accuracy of all.

    The bars have equal width. The title gives `calibration_error` with its
    defaults (l2, equal mass). With `positive=True`, the share of class 1 is
    drawn against its probability, and the error is that of the bars.

    Args:
        probs, labels: As in `metrics.calibration_error`.
        num_bins: Number of bars.
        ax: The matplotlib axes to draw on; a new figure when not given. The
            histogram and the legend are placed below them.
        title: Title of the figure, before the calibration error.
        positive: Whether to draw class 1 of a binary problem.
        from_logits, multi_label, ignore_class, sample_weight: Likewise.

    Returns:
        A `matplotlib.figure.Figure`.

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]]
        >>> figure = ct.figures.reliability_diagram(probs, [0, 0, 1, 0])
        >>> figure.savefig("reliability.png")  # doctest: +SKIP
    """
    read, binning, names = inputs.top_labels, "equal_mass", ()
    if checks.flag("positive", positive):
        read, binning = binned.positives, "equal_width"
        names = "share of class 1", "probability"
    shared = from_logits, multi_label, ignore_class, sample_weight
    outcome = read(probs, labels, *shared)
    place, below = ax, {"bbox_to_anchor": (0.5, _HISTOGRAM_BOX[1] - 0.2)}
    if ax is None:
        (ax,) = _new_axes(1)
        place, below = ax.figure, {}
    _draw(ax, outcome, title, num_bins, binning)
    if positive:
        ax.set_ylabel("Share of class 1")
        ax.child_axes[0].set_xlabel("Probability of class 1")
    _draw_legend(place, *names, **below)
    return ax.figure


def reliability_diagrams(predictions, num_bins=15, from_logits=False):
    """Draws several reliability diagrams side by side, at most four in a row.

    Args:
        predictions: Dictionary from titles to pairs (probabilities or logits,
            labels), such as those before and after scaling, or of groups.
        num_bins: Number of bars of each diagram.
        from_logits: Whether the pairs hold logits.

    Returns:
        A `matplotlib.figure.Figure`.

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]]
        >>> labels = [0, 0, 1, 0]
        >>> scaled = [[0.8, 0.2], [0.7, 0.3], [0.4, 0.6], [0.5, 0.5]]
        >>> figure = ct.figures.reliability_diagrams(
        ...     {"none": (probs, labels), "TS": (scaled, labels)}
        ... )
        >>> [ax.get_title("left") for ax in figure.axes]
        ['none', 'TS']
    """
    if not predictions:
        raise ValueError(
            "`predictions` must hold at least one pair. "
            f"Received: predictions={predictions!r}"
        )
    axes = _new_axes(len(predictions))
    for ax, (title, pair) in zip(axes, predictions.items(), strict=True):
        _draw(ax, inputs.top_labels(*pair, from_logits), title, num_bins)
    _draw_legend(axes[0].figure)
    return axes[0].figure


def _new_axes(count):
    """Axes of a new figure, with space for histograms and the legend."""
    columns = min(4, count)
    rows = math.ceil(count / columns)
    around = _BOTTOM - _HISTOGRAM_BOX[1] * _HEIGHT + _TOP
    width = columns * (_LEFT + _WIDTH + _RIGHT)
    height = _LEGEND + rows * (_HEIGHT + around)
    figure = style.new_figure(width, height)
    # Automatic layouts ignore the labels of the histograms.
    figure.subplots_adjust(
        left=_LEFT / width,
        right=1 - _RIGHT / width,
        bottom=(around - _TOP) / height,
        top=1 - (_LEGEND + _TOP) / height,
        wspace=(_LEFT + _RIGHT) / _WIDTH,
        hspace=around / _HEIGHT,
    )
    return [figure.add_subplot(rows, columns, i + 1) for i in range(count)]


def _draw_legend(place, accuracy="accuracy", confidence="confidence", **below):
    """Draws a legend above all diagrams of a figure, or at axes."""
    handles = [
        Patch(facecolor=_BLUE, label=accuracy),
        Patch(**_GAP, label="gap"),
        Line2D([], [], color=_BLUE, linestyle="--", label=f"mean {accuracy}"),
        Line2D([], [], color=_ORANGE, label=f"mean {confidence}"),
    ]
    look = {"frameon": False, "ncols": 2, "fontsize": 8}
    place.legend(handles=handles, loc="upper center", **look, **below)


def draw_diagonal(ax, **options):
    """Draws the line of a calibrated classifier."""
    line = {"color": style.GREY, "linewidth": 1, "linestyle": "--"}
    ax.plot([0, 1], [0, 1], **line, **options)


def _draw(ax, outcome, title, num_bins, binning="equal_mass"):
    """Draws a reliability diagram of `inputs.Outcomes`, without a legend."""
    error = binned.calibration_error(outcome, None, num_bins, binning=binning)
    curve, unweighted = (
        binned.reliability_curve(each, None, num_bins, "equal_width")
        for each in (outcome, outcome._replace(weight=None))
    )
    left = np.arange(num_bins) / num_bins
    accuracy = np.nan_to_num(curve.accuracy)
    gap = np.nan_to_num(curve.confidence - curve.accuracy)
    options = {"width": 1 / num_bins, "align": "edge", "linewidth": 0.8}
    bars = ax.bar(left, accuracy, color=_BLUE, edgecolor="white", **options)
    gaps = ax.bar(left, gap, bottom=accuracy, **_GAP, **options)
    for bar, gap_bar, count in zip(bars, gaps, unweighted.count, strict=True):
        if count < FEW:
            bar.set_alpha(_FAINT)
            gap_bar.set(
                facecolor=to_rgba(_ORANGE, 0.35 * _FAINT),
                edgecolor=to_rgba(_ORANGE, _FAINT),
            )
    draw_diagonal(ax)
    ax.set(xlim=(0, 1), ylim=(0, 1), ylabel="Accuracy")
    ax.tick_params(labelbottom=False)
    text = f"ECE {100 * error:.2f}% ({binning.replace('_', ' ')})"
    ax.set_title(title or "", loc="left", fontsize=9)
    ax.set_title(text, loc="right", fontsize=9)
    below = ax.inset_axes(_HISTOGRAM_BOX, sharex=ax)
    share = curve.count / curve.count.sum()
    below.bar(left, share, color="#CCCCCC", edgecolor="white", **options)
    below.axvline(np.nan_to_num(curve.confidence) @ share, color=_ORANGE)
    below.axvline(accuracy @ share, color=_BLUE, linestyle="--")
    below.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    below.set(xlabel="Confidence", ylabel="Share")
