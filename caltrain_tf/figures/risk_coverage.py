"""Risk-coverage curves of networks that may abstain."""

import numpy as np
from matplotlib.ticker import PercentFormatter

from caltrain_tf import inputs, metrics
from caltrain_tf.figures.style import WIDTH, new_axes


def risk_coverage(
    probs,
    labels,
    from_logits=False,
    ax=None,
    label=None,
    *,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
):
    """Draws the risk of the most confident predictions against their share.

    The dashed line is the best curve for this accuracy, in which every wrong
    prediction is less confident than every right one. The legend gives the area
    under the curve, `metrics.aurc`.

    Args:
        probs, labels: As in `metrics.calibration_error`.
        ax: The matplotlib axes to draw on; a new figure when not given. Pass
            the axes of an earlier figure to add another curve.
        label: Name of the curve in the legend.
        from_logits, multi_label, ignore_class, sample_weight: Likewise.

    Returns:
        A `matplotlib.figure.Figure`.

    Example:
        >>> import caltrain_tf as ct
        >>> probs = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]]
        >>> figure = ct.figures.risk_coverage(probs, [0, 1, 1, 1], label="NLL")
        >>> figure.axes[0].get_legend().get_texts()[0].get_text()
        'NLL: AURC 31.94%'
        >>> figure = ct.figures.risk_coverage(
        ...     probs, [0, 0, 1, 0], ax=figure.axes[0], label="focal")
    """
    shared = from_logits, multi_label, ignore_class, sample_weight
    outcomes = inputs.top_labels(probs, labels, *shared)
    curve = metrics.risk_coverage_curve(outcomes, None)
    text = f"AURC {100 * metrics.aurc(outcomes, None):.2f}%"
    if ax is None:
        _, ax = new_axes(0.75 * WIDTH)
    (line,) = ax.plot(
        # The curve is constant below the smallest coverage.
        np.append(0.0, curve.coverage),
        np.append(curve.risk[0], curve.risk),
        label=text if label is None else f"{label}: {text}",
    )
    error, look = curve.risk[-1], {"linestyle": "--", "linewidth": 1}
    shares = np.linspace(max(1 - error, 1e-6), 1, 200)
    best = np.append(0.0, 1 - (1 - error) / shares)
    ax.plot(np.append(0.0, shares), best, color=line.get_color(), **look)
    ax.set(xlabel="Coverage", ylabel="Risk", xlim=(0, 1))
    # The limit includes all curves in the axes.
    ax.set_ylim(0, max(1.05 * ax.dataLim.y1, 0.01))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(PercentFormatter(1))
    ax.legend(frameon=False, fontsize=8)
    return ax.figure
