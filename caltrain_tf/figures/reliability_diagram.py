"""Accuracy against confidence, as bars."""

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from caltrain_tf.metrics import calibration_error
from caltrain_tf.metrics import reliability_curve

# Of Okabe and Ito's palette, told apart with any colour vision.
_BLUE, _ORANGE, _GREY = "#0072B2", "#E69F00", "#666666"
# Of the main axes' height: where the histogram starts, and its height.
_HISTOGRAM_BOX = (0, -0.34, 1, 0.26)


def reliability_diagram(
    probs, labels, num_bins=15, from_logits=False, ax=None, title=None
):
    """Draws the accuracy of predictions against their confidence.

    A bar is the accuracy of the predictions whose confidence is in its part
    of [0, 1], and the hatched gap leads to their mean confidence: a calibrated
    network has no gaps. Beneath is how many predictions there are, with their
    mean confidence (orange line) and their accuracy (blue, dashed). The corner
    gives `calibration_error` with its defaults, l2 over as many equal-mass
    bins, since this is the figure that tables report.

    Args:
        probs: Probabilities, or logits, `(N, K)`.
        labels: Class ids `(N,)`, or one-hot rows `(N, K)`.
        num_bins: Number of bars.
        from_logits: Whether `probs` holds logits.
        ax: The matplotlib axes to draw on; a new figure when not given. The
            histogram is placed below them.
        title: What is written above.

    Returns:
        A `matplotlib.figure.Figure`.

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]]
        >>> figure = ct.figures.reliability_diagram(probs, [0, 0, 1, 0])
        >>> figure.savefig("reliability.png")  # doctest: +SKIP
    """
    if ax is None:
        (ax,) = _new_axes(1)
    options = {"num_bins": num_bins, "from_logits": from_logits}
    curve = reliability_curve(probs, labels, binning="equal_width", **options)
    error = calibration_error(probs, labels, **options)
    _draw_bars(ax, curve, num_bins)
    _draw_histogram(ax, curve, num_bins)
    ax.legend(title=f"ECE {100 * error:.2f}%", loc="upper left")
    if title is not None:
        ax.set_title(title)
    return ax.figure


def reliability_diagrams(predictions, num_bins=15, from_logits=False):
    """Draws several reliability diagrams side by side.

    Args:
        predictions: From titles to pairs (probabilities or logits, labels),
            such as those before and after scaling.
        num_bins: Number of bars of each.
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
        >>> [ax.get_title() for ax in figure.axes]
        ['none', 'TS']
    """
    if not predictions:
        raise ValueError(
            "`predictions` must hold at least one pair. "
            f"Received: predictions={predictions!r}"
        )
    axes = _new_axes(len(predictions))
    for ax, (title, pair) in zip(axes, predictions.items(), strict=True):
        reliability_diagram(*pair, num_bins, from_logits, ax, title)
    return axes[0].figure


def _new_axes(count):
    # No pyplot: it would keep every figure of a long run.
    figure = Figure(figsize=(3.8 * count, 4.8), dpi=120)
    FigureCanvasAgg(figure)
    # By hand: automatic layouts take no account of the histograms' labels.
    figure.subplots_adjust(
        left=0.17 / count,
        right=1 - 0.04 / count,
        bottom=0.34,
        top=0.93,
        wspace=0.26,
    )
    return figure.subplots(1, count, squeeze=False)[0]


def _draw_bars(ax, curve, num_bins):
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
    ax.plot([0, 1], [0, 1], color=_GREY, linestyle="--", linewidth=1)
    ax.set(xlim=(0, 1), ylim=(0, 1), ylabel="Accuracy")
    ax.tick_params(labelbottom=False)


def _draw_histogram(ax, curve, num_bins):
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
