"""Figures that compare objectives: the paper's bar and scatter plots."""

import numpy as np
import pandas as pd
from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from caltrain_tf.figures import style

# Effect sizes, with their names in the paper.
_EFFECTS = {0.8: "large", 2.0: "huge"}
_STRENGTHS = (1.0, 0.6, 0.35)


def effect_size_bars(effects, title=None):
    """Draws Cohen's d of every secondary loss, with the best at the top.

    This is figure 1 of the paper. Bars are means over pairs of setting and
    primary loss; small marks are the pairs. Lines at 0.8 and 2.0 show large and
    huge effects.

    Args:
        effects: Rows from `evaluation.effect_sizes`. Rows of several metrics
            (`ece`, `ece_ts`) are drawn as bars side by side. Effects that are
            NaN, as those of single runs, are left out.
        title: Title of the figure.

    Returns:
        A `matplotlib.figure.Figure`.

    Example:
        >>> import caltrain_tf as ct
        >>> effects = [
        ...     {"setting": "s", "primary": "nll", "secondary": name,
        ...      "interleaved": False, "metric": "ece", "d": d}
        ...     for name, d in (("mmce", 1.5), ("s_avuc", 2.5))
        ... ]
        >>> figure = ct.figures.effect_size_bars(effects)
        >>> [text.get_text() for text in figure.axes[0].get_yticklabels()]
        ['S-AvUC', 'MMCE']
    """
    frame = pd.DataFrame(effects)
    frame = frame.dropna(subset="d") if len(frame) else frame
    if frame.empty:
        raise ValueError(
            "`effects` must hold a d that is a number, which takes two seeds. "
            f"Received: effects={effects!r}"
        )
    metrics = list(frame["metric"].unique())
    means = frame.pivot_table(
        "d", ["secondary", "interleaved"], "metric", sort=False
    )
    # Sorted by the first metric that each loss has.
    order = means[metrics].bfill(axis=1)[metrics[0]]
    groups = list(order.sort_values(ascending=False).index)
    height = 0.8 / len(metrics)
    figure, ax = style.new_axes(1.1 + len(groups) * (0.15 + 0.2 * len(metrics)))
    for (secondary, interleaved, metric), points in frame.groupby(
        ["secondary", "interleaved", "metric"], sort=False
    ):
        place = groups.index((secondary, interleaved)) - 0.4
        place += height * (metrics.index(metric) + 0.5)
        strength = _STRENGTHS[metrics.index(metric) % len(_STRENGTHS)]
        color = style.objective_style(f"+{secondary}").color
        color = to_rgba(color, strength)
        ax.barh(
            place,
            points["d"].mean(),
            height=0.9 * height,
            facecolor="none" if interleaved else color,
            edgecolor=color if interleaved else "none",
        )
        for d, primary in zip(points["d"], points["primary"], strict=True):
            ax.plot(d, place, **_mark(primary))
    for value, name in _EFFECTS.items():
        ax.axvline(value, color=style.GREY, linestyle="--", linewidth=1)
        ax.annotate(
            f"{name} {value}",
            (value, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, 2),
            textcoords="offset points",
            # On opposite sides, because the lines may be close.
            ha="right" if value < 1 else "left",
            fontsize=8,
            color=style.GREY,
        )
    ax.axvline(0, color="black", linewidth=0.8)
    labels = [
        style.loss_label(secondary) + "\n(interleaved)" * interleaved
        for secondary, interleaved in groups
    ]
    ax.set_yticks(range(len(groups)), labels)
    ax.invert_yaxis()
    ax.set_xlabel("Cohen's d (above 0: better than without)")
    if title:
        ax.set_title(title, pad=16)
    handles = [
        Patch(
            color=to_rgba(style.GREY, strength),
            label=style.metric_label(name, False),
        )
        for name, strength in zip(metrics, _STRENGTHS, strict=False)
    ]
    handles += [
        Line2D([], [], label=style.loss_label(name), **_mark(name))
        for name in frame["primary"].unique()
    ]
    style.legend_below(ax, handles, columns=3)
    return figure


def error_bars_by_objective(summaries, metric="ece", title=None):
    """Draws a metric as one bar per objective, with the accuracy below it.

    This is figure 5 of the paper. Bars are horizontal and grouped by primary
    loss, so that the names of many objectives are readable. Error bars are one
    standard error over seeds; a single run has none.

    Args:
        summaries: Rows from `evaluation.summarize_results`, of one setting.
            Objectives without the metric have no bar.
        metric: Name of the metric.
        title: Title of the figure.

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
    style.check_rows("summaries", pd.DataFrame(summaries))
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
    figure, ax = style.new_axes(0.8 + 0.4 * (places[-1] + 1), title)
    factor = style.metric_factor(metric)
    for place, row in zip(places, shown, strict=True):
        error = row["error"][metric]
        ax.barh(
            place,
            factor * row["mean"][metric],
            height=0.48,
            xerr=None if np.isnan(error) else factor * error,
            error_kw={"capsize": 3, "linewidth": 1.2},
            **style.objective_style(row["objective"]).bar(),
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
    labels = [style.objective_label(row["objective"]) for row in shown]
    labels = [label.replace(" (", "\n(") for label in labels]
    ax.set_yticks(places, labels, fontsize=9)
    ax.set_ylim(places[-1] + 0.75, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.set_xlim(left=0)
    ax.set_xlabel(style.metric_label(metric))
    return figure


def error_against_uncertainty(rows, metric="ece", title=None):
    """Draws an error of runs against their mean entropy.

    Small points are runs, and large points are means over the runs of an
    objective. A low error at a low uncertainty is best.

    Args:
        rows: Result rows of one setting, one dictionary per run: `objective`,
            `average_uncertainty` and the metric; or a pandas frame of them.
            Runs without these values are left out.
        metric: Name of the error metric.
        title: Title of the figure.

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
    figure, ax = style.new_axes(3.8, title)
    _draw_runs(ax, rows, "average_uncertainty", metric)
    style.legend_below(ax)
    return figure


def accuracy_error_tradeoff(rows, metric="ece", title=None):
    """Draws an error of runs against their accuracy, with the Pareto front.

    Small points are runs, and large points are means over the runs of an
    objective. The line is the Pareto front of the means: every mean to the left
    of it and above is beaten by another one in accuracy, error or both.

    Args:
        rows: Result rows of one setting, one dictionary per run: `objective`,
            `accuracy` and the metric; or a pandas frame of them. Runs without
            these values are left out.
        metric: Name of the error metric.
        title: Title of the figure.

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
    figure, ax = style.new_axes(3.8, title)
    means = _draw_runs(ax, rows, "accuracy", metric)
    front = means[pareto_front(means * [-1, 1])]
    accuracy, error = front[np.argsort(front[:, 0])].T
    ax.plot(
        accuracy,
        error,
        # A step shows the lowest error at which an accuracy is reached.
        drawstyle="steps-pre",
        color="black",
        linewidth=1,
        zorder=1,
        label="Pareto front",
    )
    style.legend_below(ax)
    return figure


def pareto_front(points):
    """Returns which points are on the Pareto front.

    A point is beaten by another point that is at least as low in every column
    and lower in at least one. Equal points do not beat each other.

    Args:
        points: `(N, D)`, where lower is better; negate columns for which higher
            is better.

    Returns:
        A boolean array `(N,)`.

    Example:
        >>> pareto_front([[1, 5], [2, 3], [3, 4], [4, 1]]).tolist()
        [True, True, False, True]
    """
    points = np.asarray(points, float)
    if points.ndim != 2 or np.isnan(points).any():
        raise ValueError(
            "`points` must be (points, columns) without NaN. "
            f"Received: points={points!r}"
        )
    first, second = points[:, None], points[None]
    beaten_by = (second <= first).all(-1) & (second < first).any(-1)
    return ~beaten_by.any(axis=1)


def _draw_runs(ax, rows, x, y):
    """Draws two metrics of runs against each other.

    Returns:
        The means `(x, y)` of the objectives, in the units drawn.
    """
    frame = pd.DataFrame(rows)
    style.check_rows("rows", frame)
    if {x, y} <= set(frame.columns):
        frame = frame.dropna(subset=[x, y])
    if not {x, y} <= set(frame.columns) or frame.empty:
        raise ValueError(
            f"`rows` must hold both metrics. Received: metrics {x!r} and {y!r}"
        )
    factors = style.metric_factor(x), style.metric_factor(y)
    means = []
    for objective, runs in frame.groupby("objective", sort=False):
        points = runs[[x, y]].to_numpy(float) * factors
        look = style.objective_style(objective).line() | {"linestyle": "none"}
        ax.plot(*points.T, markersize=3.5, alpha=0.6, **look)
        means.append(points.mean(axis=0))
        label = style.objective_label(objective)
        ax.plot(*means[-1], markersize=9, label=label, **look)
    ax.set(xlabel=style.metric_label(x), ylabel=style.metric_label(y))
    ax.grid(alpha=0.3)
    return np.array(means)


def _mark(primary):
    return {
        "marker": style.objective_style(primary).marker,
        "markersize": 4,
        "markerfacecolor": "white",
        "markeredgecolor": "black",
        "markeredgewidth": 0.7,
        "linestyle": "none",
    }


def _accuracy(row):
    if "accuracy" not in row["mean"]:
        return ""
    text = f"accuracy {100 * row['mean']['accuracy']:.1f}"
    error = row["error"]["accuracy"]
    return text + ("%" if np.isnan(error) else f" ± {100 * error:.1f}%")
