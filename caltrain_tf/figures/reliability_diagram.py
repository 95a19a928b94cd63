"""Accuracy against confidence, as bars."""

from caltrain_tf.figures.reliability_drawing import draw_reliability
from caltrain_tf.figures.reliability_drawing import new_reliability_axes
from caltrain_tf.metrics import calibration_error
from caltrain_tf.metrics import reliability_curve


def reliability_diagram(
    probs,
    labels,
    num_bins=15,
    from_logits=False,
    ax=None,
    title=None,
    *,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
):
    """Draws the accuracy of predictions against their confidence.

    A bar is the accuracy of the predictions whose confidence is in its part
    of [0, 1], and the hatched gap leads to their mean confidence: a calibrated
    network has no gaps. Beneath is how many predictions there are, with their
    mean confidence (orange line) and their accuracy (blue, dashed). The corner
    gives `calibration_error` with its defaults, l2 over as many equal-mass
    bins, since this is the figure that tables report.

    Args:
        probs: Probabilities, or logits, `(..., K)`; `(N,)` or `(..., 1)` for
            those of class 1 of a binary problem.
        labels: Class ids `(...)`, or one-hot rows `(..., K)`.
        num_bins: Number of bars.
        from_logits: Whether `probs` holds logits.
        ax: The matplotlib axes to draw on; a new figure when not given. The
            histogram is placed below them.
        title: What is written above.
        multi_label: Whether the columns are binary problems, to be pooled.
        ignore_class: The label of examples that count nothing.
        sample_weight: Weights of the examples, `(...)` or of the first axes.

    Returns:
        A `matplotlib.figure.Figure`.

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]]
        >>> figure = ct.figures.reliability_diagram(probs, [0, 0, 1, 0])
        >>> figure.savefig("reliability.png")  # doctest: +SKIP
    """
    if ax is None:
        (ax,) = new_reliability_axes(1)
    options = {
        "num_bins": num_bins,
        "from_logits": from_logits,
        "multi_label": multi_label,
        "ignore_class": ignore_class,
        "sample_weight": sample_weight,
    }
    curve = reliability_curve(probs, labels, binning="equal_width", **options)
    error = calibration_error(probs, labels, **options)
    draw_reliability(ax, curve)
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
    axes = new_reliability_axes(len(predictions))
    for ax, (title, pair) in zip(axes, predictions.items(), strict=True):
        reliability_diagram(*pair, num_bins, from_logits, ax, title)
    return axes[0].figure
