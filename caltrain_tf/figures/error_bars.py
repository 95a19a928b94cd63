"""Figure 5 of the paper: ECE by objective, with the accuracy."""

import numpy as np

from caltrain_tf.figures import layout
from caltrain_tf.figures.colors import objective_style
from caltrain_tf.figures.labels import metric_factor
from caltrain_tf.figures.labels import metric_label
from caltrain_tf.figures.labels import objective_label


def error_bars_by_objective(summaries, metric="ece", title=None):
    """Draws a metric as a bar an objective, the accuracy under each bar.

    Bars lie, grouped by primary loss, so that the names of many objectives
    can be read. Error bars are one standard error over seeds; a single run
    has none.

    Args:
        summaries: Of `evaluation.summarize_results`, of one setting. Where the
            metric is missing, there is no bar.
        metric: Which metric.
        title: What is written above.

    Returns:
        A `matplotlib.figure.Figure`.

    Example:
        >>> import caltrain_tf as ct
        >>> summaries = [
        ...     {"objective": name, "primary": "nll",
        ...      "mean": {"ece": ece, "accuracy": 0.9},
        ...      "error": {"ece": 0.001, "accuracy": 0.002}}
        ...     for name, ece in (("nll", 0.05), ("nll+mmce", 0.02))
        ... ]
        >>> figure = ct.figures.error_bars_by_objective(summaries)
        >>> [float(bar.get_width()) for bar in figure.axes[0].patches]
        [5.0, 2.0]
    """
    layout.check_rows("summaries", summaries)
    shown = [row for row in summaries if metric in row["mean"]]
    if not shown:
        raise ValueError(
            f"`summaries` must hold the metric. Received: metric={metric!r}"
        )
    primaries = list(dict.fromkeys(row["primary"] for row in shown))
    shown.sort(key=lambda row: primaries.index(row["primary"]))
    # A gap of half a bar between groups.
    places = [
        index + 0.5 * primaries.index(row["primary"])
        for index, row in enumerate(shown)
    ]
    figure, ax = layout.new_axes(layout.WIDTH, 0.8 + 0.4 * (places[-1] + 1))
    factor = metric_factor(metric)
    for place, row in zip(places, shown, strict=True):
        error = row["error"][metric]
        ax.barh(
            place,
            factor * row["mean"][metric],
            height=0.48,
            xerr=None if np.isnan(error) else factor * error,
            error_kw={"capsize": 3, "linewidth": 1.2},
            **objective_style(row["objective"]).bar(),
        )
        ax.annotate(
            _accuracy(row),
            (0, place + 0.26),
            xytext=(2, 0),
            textcoords="offset points",
            va="top",
            fontsize=8,
            color="#333333",
        )
    labels = [objective_label(row["objective"]) for row in shown]
    labels = [label.replace(" (", "\n(") for label in labels]
    ax.set_yticks(places, labels, fontsize=9)
    ax.set_ylim(places[-1] + 0.75, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.set_xlim(left=0)
    ax.set_xlabel(metric_label(metric))
    ax.set_title(title or "")
    return figure


def _accuracy(row):
    if "accuracy" not in row["mean"]:
        return ""
    text = f"accuracy {100 * row['mean']['accuracy']:.1f}"
    error = row["error"]["accuracy"]
    return text + ("%" if np.isnan(error) else f" ± {100 * error:.1f}%")
