"""Figures of studies: objectives, effect sizes, calibration under shift.

Each function takes rows, dictionaries or a pandas frame of them, and returns a
`matplotlib.figure.Figure`. An objective has the same label and colours in all.
"""

import math
import zlib
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from caltrain_tf.figures import reliability, style
from caltrain_tf.metrics.binned import ReliabilityCurve

_INTERLEAVED = "-interleaved"
# Other losses are labelled with their name.
_LOSSES = {
    "nll": "NLL",
    "focal": "Focal",
    "mse": "MSE",
    "dual_focal": "Dual focal",
    "bsce_gra": "BSCE-GRA",
    "s_avuc": "S-AvUC",
    "sb_ece": "SB-ECE",
    "mmce": "MMCE",
    "avuc": "AvUC",
    "avuc_gs": "AvUC-GS",
    "sb_marginal_ece": "SB-marginal ECE",
    "esd": "ESD",
    "mdca": "MDCA",
    "dca": "DCA",
    "mbls": "MbLS",
    "acls": "ACLS",
}
_CALIBRATORS = {"none": "no scaling", "dirichlet": "Dirichlet"}
# A calibrator's name may follow: `ece`, `ece_ts`.
_METRICS = {
    "accuracy": ("Accuracy", "%"),
    "ece": ("ECE", "%"),
    "ks_error": ("KS error", "%"),
    "mean_sweep_ce": ("Mean-sweep CE", "%"),
    "marginal_ece": ("Marginal ECE", "%"),
    "smooth_ece": ("Smooth ECE", "%"),
    "nll": ("NLL", ""),
    "brier": ("Brier score", ""),
    "temperature": ("Temperature", ""),
    "average_uncertainty": ("Average uncertainty", "nats"),
}
# Okabe and Ito's palette, which is safe for colour-blind readers, and colours
# at least 15 CIELAB units from it and from each other for any colour vision.
_PRIMARY_COLORS = {
    "nll": "#0072B2",
    "focal": "#332288",
    "mse": "#661100",
    "dual_focal": "#553377",
    "bsce_gra": "#6644CC",
}
_SECONDARY_COLORS = {
    "s_avuc": "#D55E00",
    "sb_ece": "#E69F00",
    "mmce": "#CC79A7",
    "avuc": "#009E73",
    "avuc_gs": "#56B4E9",
    "sb_marginal_ece": "#000000",
    "esd": "#9911FF",
    "mdca": "#9977FF",
    "dca": "#776633",
    "mbls": "#330044",
    "acls": "#AA1100",
}
_OTHER_COLORS = ("#882255", "#B0A060", "#BBCCAA", "#99CCDD")
# Marker, line style and hatch.
_PRIMARY_STYLES = {
    "nll": ("o", "-", ""),
    "focal": ("s", "--", "///"),
    "mse": ("^", ":", "..."),
    "dual_focal": ("D", "-.", "xxx"),
    "bsce_gra": ("v", (0, (5, 1, 1, 1, 1, 1)), "---"),
}
_OTHER_STYLES = (("P", "-.", "+++"), ("X", "-.", "ooo"), ("h", "-.", "***"))

_LEGEND_ROW = 0.19
# Longer labels would be cut off in a legend of two columns.
_MAX_CHARACTERS = 28
# Effect sizes, with their names in the paper.
_EFFECTS = {0.8: "large", 2.0: "huge"}
_STRENGTHS = (1.0, 0.6, 0.35)
_MARKERS = "osD^vPX"


def split_objective(objective):
    """Returns the primary loss, secondary loss ("" for none) and `interleaved`.

    Example:
        >>> split_objective("nll+s_avuc-interleaved")
        ('nll', 's_avuc', True)
    """
    name = objective.removesuffix(_INTERLEAVED)
    primary, _, secondary = name.partition("+")
    return primary, secondary, name != objective


def loss_label(loss):
    """Returns the name of a loss in the literature; others are unchanged.

    Example:
        >>> loss_label("sb_ece"), loss_label("my_loss")
        ('SB-ECE', 'my_loss')
    """
    return _LOSSES.get(loss, loss)


def objective_label(objective):
    """Returns the label of an objective in tables and figures.

    Args:
        objective: Name of an objective, such as `focal+sb_ece`.

    Returns:
        A string.

    Example:
        >>> objective_label("focal+sb_ece")
        'Focal + SB-ECE'
        >>> objective_label("nll+s_avuc-interleaved")
        'NLL + S-AvUC (interleaved)'
    """
    primary, secondary, interleaved = split_objective(objective)
    label = " + ".join(map(loss_label, filter(None, (primary, secondary))))
    return label + (" (interleaved)" if interleaved else "")


def calibrator_label(calibrator):
    """Returns the label of a calibrator, with abbreviations in capitals.

    Example:
        >>> calibrator_label("none"), calibrator_label("ts_sb_ece")
        ('no scaling', 'TS-SB-ECE')
        >>> calibrator_label("matrix_scaling")
        'matrix scaling'
    """
    if calibrator in _CALIBRATORS:
        return _CALIBRATORS[calibrator]
    if len(calibrator.partition("_")[0]) <= 3:
        return calibrator.replace("_", "-").upper()
    return calibrator.replace("_", " ")


def metric_label(metric, unit=True):
    """Returns the label of a metric with its unit.

    Args:
        metric: Name of a metric in `results.json`, such as `ece` or `ece_ts`.
        unit: Whether to add the unit.

    Returns:
        A string.

    Example:
        >>> metric_label("ece_ts_sb_ece"), metric_label("nll")
        ('ECE + TS-SB-ECE (%)', 'NLL')
    """
    base, calibrator = _split_metric(metric)
    label, unit_name = _METRICS.get(base, (base, ""))
    if calibrator:
        label += f" + {calibrator_label(calibrator)}"
    return f"{label} ({unit_name})" if unit and unit_name else label


def metric_factor(metric):
    """Returns 100 for metrics that are shown in percent, otherwise 1."""
    base, _ = _split_metric(metric)
    return 100 if _METRICS.get(base, ("", ""))[1] == "%" else 1


class ObjectiveStyle(NamedTuple):
    """The result of `objective_style`, whose docstring describes the fields."""

    color: str
    marker: str
    linestyle: str | tuple
    hatch: str
    filled: bool

    def line(self):
        """Returns arguments of `Axes.plot` and `Axes.errorbar`."""
        return {
            "color": self.color,
            "marker": self.marker,
            "linestyle": self.linestyle,
            "markerfacecolor": self.color if self.filled else "white",
        }

    def bar(self):
        """Returns arguments of `Axes.bar` and `Axes.barh`."""
        return {
            "facecolor": self.color if self.filled else "white",
            "edgecolor": "white" if self.filled else self.color,
            "hatch": self.hatch,
        }


def objective_style(objective):
    """Returns the style of an objective, which is the same in all figures.

    The colour is that of the secondary loss, or of the primary loss if there is
    no secondary loss, from a palette that is safe for colour-blind readers. The
    marker, line style and hatch are those of the primary loss. Markers and bars
    of interleaved training are hollow.

    Args:
        objective: Name of an objective, such as `focal+sb_ece`. Unknown losses
            get one of the remaining colours and markers, always the same one.

    Returns:
        A named tuple of `color`, `marker`, `linestyle`, `hatch` and `filled`,
        whose methods `line()` and `bar()` give arguments for matplotlib.

    Example:
        >>> style = objective_style("focal+sb_ece")
        >>> style.color, style.marker, style.filled
        ('#E69F00', 's', True)
        >>> objective_style("focal+sb_ece-interleaved").filled
        False
    """
    primary, secondary, interleaved = split_objective(objective)
    if secondary:
        color = _SECONDARY_COLORS.get(secondary)
    else:
        color = _PRIMARY_COLORS.get(primary)
    color = color or _pick(_OTHER_COLORS, secondary or primary)
    style = _PRIMARY_STYLES.get(primary) or _pick(_OTHER_STYLES, primary)
    return ObjectiveStyle(color, *style, filled=not interleaved)


def effect_size_bars(effects, title=None):
    """Draws Cohen's d of every secondary loss, with the best at the top.

    This is figure 1 of the paper. Bars are means over pairs of setting and
    primary loss; small marks are the pairs. Lines at 0.8 and 2.0 show large and
    huge effects.

    Args:
        effects: Rows from `statistics.effect_sizes`. Rows of several metrics
            (`ece`, `ece_ts`) are drawn as bars side by side. Effects that are
            NaN, as those of single runs, are left out.
        title: Title of the figure.

    Returns:
        A `matplotlib.figure.Figure`.

    Example:
        >>> effects = [
        ...     {"setting": "s", "primary": "nll", "secondary": name,
        ...      "interleaved": False, "metric": "ece", "d": d}
        ...     for name, d in (("mmce", 1.5), ("s_avuc", 2.5))
        ... ]
        >>> figure = effect_size_bars(effects)
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
        color = objective_style(f"+{secondary}").color
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
        loss_label(secondary) + "\n(interleaved)" * interleaved
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
            label=metric_label(name, False),
        )
        for name, strength in zip(metrics, _STRENGTHS, strict=False)
    ]
    handles += [
        Line2D([], [], label=loss_label(name), **_mark(name))
        for name in frame["primary"].unique()
    ]
    legend_below(ax, handles, columns=3)
    return figure


def error_bars_by_objective(summaries, metric="ece", title=None):
    """Draws a metric as one bar per objective, with the accuracy below it.

    This is figure 5 of the paper. Bars are horizontal and grouped by primary
    loss, so that the names of many objectives are readable. Error bars are one
    standard error over seeds; a single run has none.

    Args:
        summaries: Rows from `statistics.summarize_results`, of one setting.
            Objectives without the metric have no bar.
        metric: Name of the metric.
        title: Title of the figure.

    Returns:
        A `matplotlib.figure.Figure`.

    Example:
        >>> summaries = [
        ...     {"objective": name, "primary": "nll",
        ...      "mean": {"ece": ece, "accuracy": 0.9},
        ...      "error": {"ece": 0.001, "accuracy": 0.002}}
        ...     for name, ece in (("nll", 0.05), ("nll+mmce", 0.02))
        ... ]
        >>> figure = error_bars_by_objective(summaries)
        >>> [float(bar.get_width()) for bar in figure.axes[0].patches]
        [5.0, 2.0]
    """
    check_rows("summaries", pd.DataFrame(summaries))
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
        >>> rows = [
        ...     {"objective": "nll", "average_uncertainty": 0.2, "ece": 0.1},
        ...     {"objective": "focal", "average_uncertainty": 0.6, "ece": 0.05},
        ... ]
        >>> figure = error_against_uncertainty(rows)
        >>> [text.get_text() for text in figure.legends[0].texts]
        ['NLL', 'Focal']
    """
    figure, ax = style.new_axes(3.8, title)
    _draw_runs(ax, rows, "average_uncertainty", metric)
    legend_below(ax)
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
        >>> rows = [
        ...     {"objective": "nll", "accuracy": 0.9, "ece": 0.1},
        ...     {"objective": "focal", "accuracy": 0.8, "ece": 0.05},
        ...     {"objective": "mse", "accuracy": 0.7, "ece": 0.2},
        ... ]
        >>> figure = accuracy_error_tradeoff(rows)
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
    legend_below(ax)
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


def reliability_from_rows(
    rows, calibrator="none", errors=None, num_bins=15, columns=2
):
    """Draws a reliability diagram of every objective.

    Each is a `reliability_diagram` of the predictions of all seeds together.

    Args:
        rows: Reliability rows of one setting, one dictionary per bin of a run:
            `objective`, `seed`, `calibrator`, `bin` (from 0), `confidence`,
            `accuracy` and `count`; or a pandas frame of them.
        calibrator: Name of the calibrator: `none`, `ts` or `ts_sb_ece`.
        errors: Dictionary from objectives to the ECE in the title, such as the
            means of `statistics.summarize_results`. For other objectives, the
            title has the l2 error of the bins drawn, as "equal-width ECE".
        num_bins: Number of bins of the rows.
        columns: Number of diagrams per row.

    Returns:
        A `matplotlib.figure.Figure`.

    Example:
        >>> rows = [
        ...     {"objective": name, "seed": 0, "calibrator": "none", "bin": b,
        ...      "confidence": b / 2 + 0.3, "accuracy": b / 2, "count": 90}
        ...     for b in (0, 1)
        ...     for name in ("nll", "focal+sb_ece")
        ... ]
        >>> figure = reliability_from_rows(rows, num_bins=2)
        >>> [ax.get_title("left").splitlines()[0] for ax in figure.axes]
        ['NLL', 'Focal + SB-ECE']
    """
    curves = _curves_by_objective(rows, calibrator, num_bins)
    axes = reliability.new_axes(len(curves), columns, width=1.9)
    for ax, (objective, curve) in zip(axes, curves.items(), strict=True):
        if errors is not None and objective in errors:
            error = f"ECE {100 * errors[objective]:.2f}%"
        else:
            share = curve.count / curve.count.sum()
            gaps = np.nan_to_num(curve.confidence - curve.accuracy)
            error = f"equal-width ECE {100 * np.sqrt(share @ gaps**2):.2f}%"
        # The end of a long name is on the second line.
        name, *kind = objective_label(objective).split(" (")
        second = " ".join([*(f"({part}" for part in kind), error])
        reliability.draw(ax, curve, curve.count, f"{name}\n{second}", size=8)
    reliability.draw_legend(axes[0].figure)
    return axes[0].figure


def accuracy_against_confidence(
    rows, calibrator="none", num_bins=15, title=None
):
    """Draws the accuracy in each bin against its mean confidence.

    Networks are over-confident where their line is below the diagonal and
    under-confident where it is above. Points are means over the predictions of
    all seeds. Bins of fewer than 30 predictions are faint points that are not
    connected to the line; empty bins have no point.

    Args:
        rows: Reliability rows of one setting, as in `reliability_from_rows`.
        calibrator: Name of the calibrator: `none`, `ts` or `ts_sb_ece`.
        num_bins: Number of bins of the rows.
        title: Title of the figure.

    Returns:
        A `matplotlib.figure.Figure`.

    Example:
        >>> rows = [
        ...     {"objective": "nll", "seed": 0, "calibrator": "none", "bin": b,
        ...      "confidence": b / 2 + 0.3, "accuracy": b / 2, "count": 90}
        ...     for b in (0, 1)
        ... ]
        >>> figure = accuracy_against_confidence(rows, num_bins=2)
        >>> [text.get_text() for text in figure.legends[0].texts]
        ['calibrated', 'NLL']
    """
    curves = _curves_by_objective(rows, calibrator, num_bins)
    figure, ax = style.new_axes(4.4, title)
    reliability.draw_diagonal(ax, label="calibrated")
    for objective, curve in curves.items():
        line = objective_style(objective).line() | {"markersize": 4}
        many = curve.count >= reliability.FEW
        ax.plot(
            curve.confidence[many],
            curve.accuracy[many],
            linewidth=1.3,
            label=objective_label(objective),
            **line,
        )
        few = (curve.count > 0) & ~many
        line |= {"linestyle": "none", "alpha": reliability.FAINT}
        ax.plot(curve.confidence[few], curve.accuracy[few], **line)
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="Confidence", ylabel="Accuracy")
    ax.grid(alpha=0.3)
    legend_below(ax)
    return figure


def shift_lines(means, metric="ece", title=None):
    """Draws a metric against severity, one line per calibrator or objective.

    Args:
        means: Dictionaries with `severity`, `mean`, `error` (NaN for none) and
            one of `calibrator` and `objective`, as returned by
            `statistics.means_by_severity` and `statistics.compare_runs`.
        metric: Name of the metric.
        title: Title of the figure.

    Returns:
        A `matplotlib.figure.Figure`.

    Example:
        >>> means = [
        ...     {"severity": s, "calibrator": c, "mean": 0.1 * s, "error": 0.01}
        ...     for s in (0, 1, 2)
        ...     for c in ("none", "ts")
        ... ]
        >>> figure = shift_lines(means)
        >>> [text.get_text() for text in figure.legends[0].texts]
        ['no scaling', 'TS']
    """
    frame = pd.DataFrame(means)
    check_rows("means", frame)
    factor = metric_factor(metric)
    kind = "objective" if "objective" in frame else "calibrator"
    lines = list(frame.groupby(kind, sort=False))
    figure, ax = style.new_axes(3.8, title)
    # Offsets keep the error bars of different lines apart.
    step = min(0.06, 0.5 / len(lines))
    for index, (name, points) in enumerate(lines):
        points = points.sort_values("severity")
        offset = step * (index - (len(lines) - 1) / 2)
        if kind == "objective":
            look = objective_style(name).line()
            label = objective_label(name)
        else:
            color = style.OKABE_ITO[index % len(style.OKABE_ITO)]
            marker = _MARKERS[index % len(_MARKERS)]
            look = {"color": color, "marker": marker}
            label = calibrator_label(name)
        values = points[["severity", "mean", "error"]].to_numpy(float)
        severity, mean, error = values.T
        ax.errorbar(
            severity + offset,
            factor * mean,
            yerr=factor * np.nan_to_num(error),
            markersize=4,
            capsize=2,
            linewidth=1.5,
            label=label,
            **look,
        )
    ticks = sorted(frame["severity"].unique())
    ax.set_xticks(ticks, [str(tick) if tick else "clean" for tick in ticks])
    ax.set(xlabel="Severity of the shift", ylabel=metric_label(metric))
    ax.grid(axis="y", alpha=0.3)
    if len(lines) > 1:
        handles, _ = ax.get_legend_handles_labels()
        legend_below(ax, handles)
    return figure


def shift_heatmap(rows, metric="ece", calibrator="none", title=None):
    """Draws a metric as a heat map over corruption and severity.

    Args:
        rows: Rows, as `statistics.evaluate_shift` returns them.
        metric: Name of the metric.
        calibrator: Name of the calibrator.
        title: Title of the figure.

    Returns:
        A `matplotlib.figure.Figure`.
    """
    frame = pd.DataFrame(rows)
    frame = frame[
        (frame["metric"] == metric)
        & (frame["calibrator"] == calibrator)
        & (frame["severity"] > 0)
    ]
    if frame.empty:
        raise ValueError(
            "`rows` must hold corrupted sets with the metric and calibrator. "
            f"Received: metric={metric!r}, calibrator={calibrator!r}"
        )
    factor = metric_factor(metric)
    cells = factor * frame.pivot(
        index="corruption", columns="severity", values="value"
    ).reindex(frame["corruption"].unique())
    scaling = calibrator_label(calibrator)
    title = title or f"{metric_label(metric)}, {scaling}"
    figure, ax = style.new_axes(1.2 + 0.27 * len(cells), title)
    ax.spines[["top", "right"]].set_visible(True)
    values = cells.to_numpy()
    image = ax.imshow(values, cmap="cividis", aspect="auto")
    middle = (np.nanmin(values) + np.nanmax(values)) / 2
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            ax.text(
                column,
                row,
                f"{value:.{1 if factor == 100 else 2}f}",
                ha="center",
                va="center",
                fontsize=8,
                color="black" if value > middle else "white",
            )
    ax.set_xticks(range(len(cells.columns)), cells.columns)
    names = [name.replace("_", " ") for name in cells.index]
    ax.set_yticks(range(len(names)), names)
    ax.set_xlabel("Severity of the shift")
    figure.colorbar(image, ax=ax)
    return figure


def legend_below(ax, handles=None, columns=None):
    """Adds a legend below the axes and increases the figure's height for it.

    Args:
        ax: Axes from `new_axes`.
        handles: Handles of the legend; by default those of all labelled
            artists.
        columns: Number of columns; by default two if the labels fit.
    """
    figure = ax.figure
    if handles is None:
        handles, _ = ax.get_legend_handles_labels()
    if columns is None:
        longest = max(len(handle.get_label()) for handle in handles)
        columns = 2 if longest <= _MAX_CHARACTERS else 1
    rows = math.ceil(len(handles) / columns)
    figure.set_figheight(figure.get_figheight() + _LEGEND_ROW * rows)
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=8,
    )


def check_rows(name, rows):
    """Raises if there are no rows, or rows of several settings.

    Args:
        name: Name of the argument in error messages.
        rows: A pandas frame, with or without the column `setting`.
    """
    if not len(rows):
        raise ValueError(f"`{name}` must not be empty. Received: no rows")
    if "setting" in rows and rows["setting"].nunique() > 1:
        raise ValueError(
            f"`{name}` must be of one setting: other runs cannot be compared "
            f"in one figure. Received: settings={set(rows['setting'])}"
        )


def _draw_runs(ax, rows, x, y):
    """Draws two metrics of runs against each other.

    Returns:
        The means `(x, y)` of the objectives, in the units drawn.
    """
    frame = pd.DataFrame(rows)
    check_rows("rows", frame)
    if {x, y} <= set(frame.columns):
        frame = frame.dropna(subset=[x, y])
    if not {x, y} <= set(frame.columns) or frame.empty:
        raise ValueError(
            f"`rows` must hold both metrics. Received: metrics {x!r} and {y!r}"
        )
    factors = metric_factor(x), metric_factor(y)
    means = []
    for objective, runs in frame.groupby("objective", sort=False):
        points = runs[[x, y]].to_numpy(float) * factors
        look = objective_style(objective).line() | {"linestyle": "none"}
        ax.plot(*points.T, markersize=3.5, alpha=0.6, **look)
        means.append(points.mean(axis=0))
        label = objective_label(objective)
        ax.plot(*means[-1], markersize=9, label=label, **look)
    ax.set(xlabel=metric_label(x), ylabel=metric_label(y))
    ax.grid(alpha=0.3)
    return np.array(means)


def _mark(primary):
    return {
        "marker": objective_style(primary).marker,
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


def _curves_by_objective(rows, calibrator, num_bins):
    """Returns a reliability curve over the runs of each objective.

    In each bin, seeds are weighted by their number of predictions.
    """
    frame = pd.DataFrame(rows)
    check_rows("rows", frame)
    frame = frame[frame["calibrator"] == calibrator]
    if frame.empty:
        raise ValueError(
            "`rows` must hold the calibrator. "
            f"Received: calibrator={calibrator!r}"
        )
    filled = frame[frame["count"] > 0].astype(
        {"confidence": float, "accuracy": float}
    )
    # The tolerance allows for rounded means.
    places = num_bins * filled["confidence"] - filled["bin"]
    wrong = filled[~places.between(-1e-5, 1 + 1e-5)]
    if len(wrong):
        raise ValueError(
            f"`rows` must be of {num_bins} equal bins of [0, 1], the first "
            f"with number 0. Received: bin={wrong['bin'].iloc[0]}, "
            f"confidence={wrong['confidence'].iloc[0]}"
        )
    curves = {}
    for objective in frame["objective"].unique():
        runs = filled[filled["objective"] == objective]
        weights = runs["count"]
        sums = pd.DataFrame(
            {
                "confidence": weights * runs["confidence"],
                "accuracy": weights * runs["accuracy"],
                "count": weights,
            }
        )
        sums = sums.groupby(runs["bin"]).sum().reindex(range(num_bins))
        means = sums[["confidence", "accuracy"]].div(sums["count"], axis=0)
        curves[objective] = ReliabilityCurve(
            means["confidence"].to_numpy(),
            means["accuracy"].to_numpy(),
            sums["count"].fillna(0).to_numpy(int),
        )
    return curves


def _split_metric(metric):
    for base in _METRICS:
        if metric == base or metric.startswith(f"{base}_"):
            return base, metric[len(base) + 1 :]
    return metric, ""


def _pick(choices, name):
    # Unlike `hash`, `crc32` is the same in every process.
    return choices[zlib.crc32(name.encode()) % len(choices)]
