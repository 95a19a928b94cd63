"""Figures of studies: objectives, effect sizes, calibration under shift.

Each function returns a `matplotlib.figure.Figure`. An objective has the same
label, colour and marker in all of them.
"""

import io
import math

import numpy as np
from matplotlib.lines import Line2D

from caltrain_tf import files, losses
from caltrain_tf.experiments import config
from caltrain_tf.figures import reliability, style
from caltrain_tf.metrics.binned import ReliabilityCurve

# Colours of the losses, in the order of the paper's tables: Okabe and Ito's
# palette, which is safe for colour-blind readers, and colours at least 15
# CIELAB units from it and from each other for any colour vision. Other losses
# are grey.
COLORS = {
    "nll": "#0072B2",
    "focal": "#332288",
    "mse": "#661100",
    "dual_focal": "#553377",
    "bsce_gra": "#6644CC",
    "avuc": "#009E73",
    "avuc_gs": "#56B4E9",
    "mmce": "#CC79A7",
    "sb_ece": "#E69F00",
    "s_avuc": "#D55E00",
    "sb_marginal_ece": "#000000",
    "esd": "#9911FF",
    "mdca": "#9977FF",
    "dca": "#776633",
    "mbls": "#330044",
    "acls": "#AA1100",
}
# Marker, line style and hatch of the primary losses.
_PRIMARY_STYLES = {
    "nll": ("o", "-", ""),
    "focal": ("s", "--", "///"),
    "mse": ("^", ":", "..."),
    "dual_focal": ("D", "-.", "xxx"),
    "bsce_gra": ("v", (0, (5, 1, 1, 1, 1, 1)), "---"),
}
_CALIBRATORS = {
    "none": "no scaling",
    "dirichlet": "Dirichlet",
    "auto": "auto",
}
# Labels and units. A calibrator's name may follow: `ece`, `ece_ts`.
_METRICS = {
    "accuracy": ("Accuracy", "%"),
    "ece_debiased": ("Debiased ECE", "%"),
    "ece_l1": ("ECE, l1", "%"),
    "ece": ("ECE", "%"),
    "train_accuracy": ("Training accuracy", "%"),
    "train_ece_l1": ("Training ECE, l1", "%"),
    "train_ece": ("Training ECE", "%"),
    "ks_error": ("KS error", "%"),
    "mean_sweep_ce": ("Mean-sweep CE", "%"),
    "marginal_ece_sum": ("Marginal ECE, sum", "%"),
    "marginal_ece": ("Marginal ECE", "%"),
    "nll": ("NLL", "nats"),
    "brier": ("Brier score", ""),
    "test_to_train_ece_l1": ("ECE / training ECE", ""),
    "average_uncertainty": ("Mean entropy", "nats"),
}


def save(figure, path):
    """Writes a figure as PNG, atomically, and returns the bytes."""
    png = io.BytesIO()
    figure.savefig(png, format="png")
    files.write_bytes(path, png.getvalue())
    return png.getvalue()


def loss_label(loss):
    """Returns the name of a loss in the literature; others are unchanged."""
    return losses.LABELS.get(loss, loss)


def objective_label(objective):
    """Returns an objective's label: `NLL + S-AvUC (interleaved)`."""
    primary, secondary, interleaved = config.split_objective(objective)
    label = " + ".join(map(loss_label, filter(None, (primary, secondary))))
    return label + (" (interleaved)" if interleaved else "")


def calibrator_label(calibrator):
    """Returns the label of a calibrator, such as `TS-SB-ECE`."""
    label = calibrator.replace("_", "-").upper()
    return _CALIBRATORS.get(calibrator, label)


def metric_label(metric, unit=True):
    """Returns the label of a metric, with its unit: `ECE + TS-SB-ECE (%)`."""
    base = _base(metric)
    label, unit_name = _METRICS.get(base, (metric, ""))
    if base and metric != base:
        label += f" + {calibrator_label(metric[len(base) + 1 :])}"
    return f"{label} ({unit_name})" if unit and unit_name else label


def metric_factor(metric):
    """Returns 100 for metrics that are shown in percent, otherwise 1."""
    return 100 if _METRICS.get(_base(metric), ("", ""))[1] == "%" else 1


def _base(metric):
    """Returns the metric without the calibrator's name, "" if unknown."""
    found = (key for key in _METRICS if f"{metric}_".startswith(f"{key}_"))
    return next(found, "")


def objective_style(objective):
    """Returns the colour, marker, line style, hatch and fill of an objective.

    The colour is that of the secondary loss, or of the primary loss if there is
    none; the others are of the primary loss. Markers and bars of interleaved
    training are hollow.
    """
    primary, secondary, interleaved = config.split_objective(objective)
    marks = _PRIMARY_STYLES.get(primary, ("P", "-.", "+++"))
    color = COLORS.get(secondary or primary, "#999999")
    return (color, *marks, not interleaved)


def effect_size_bars(effects):
    """Draws Cohen's d of every secondary loss: figure 1 of the paper.

    Bars are means of `statistics.effect_sizes` over settings and primaries,
    with the best at the top; marks are the single values, hollow ones those of
    interleaved training. Several metrics are bars side by side.
    """
    metrics = list(effects["metric"].unique())
    means = effects.pivot_table("d", "secondary", "metric", sort=False)
    means = means.sort_values(metrics[0], ascending=False)
    figure, ax = style.new_axes(1.1 + len(means) * (0.15 + 0.2 * len(metrics)))
    height, colors = 0.8 / len(metrics), ("#0072B2", "#99C7E0")

    def mark(primary, interleaved=False):
        return {
            "marker": objective_style(primary)[1],
            "markersize": 4,
            "markerfacecolor": "white" if interleaved else "black",
            "markeredgecolor": "black",
            "markeredgewidth": 0.7,
            "linestyle": "none",
        }

    handles = []
    for index, metric in enumerate(metrics):
        places = np.arange(len(means)) - 0.4 + height * (index + 0.5)
        color, label = colors[index], metric_label(metric, unit=False)
        handles.append(
            ax.barh(
                places, means[metric], 0.9 * height, 0, color=color, label=label
            )
        )
        for row in effects[effects["metric"] == metric].itertuples():
            place = places[means.index.get_loc(row.secondary)]
            ax.plot(row.d, place, **mark(row.primary, row.interleaved))
    # On opposite sides, because the lines may be close.
    for text, value, side in (("large", 0.8, "right"), ("huge", 2.0, "left")):
        ax.axvline(value, color=style.GREY, linestyle="--", linewidth=1)
        ax.text(
            value,
            1.01,
            f"{text} {value}",
            transform=ax.get_xaxis_transform(),
            ha=side,
            fontsize=8,
            color=style.GREY,
        )
    ax.axvline(0, color="black", linewidth=0.8)
    ax.set_yticks(range(len(means)), map(loss_label, means.index))
    ax.invert_yaxis()
    ax.set_xlabel("Cohen's d (above 0: better than without)")
    handles += [
        Line2D([], [], label=loss_label(name), **mark(name))
        for name in effects["primary"].unique()
    ]
    if effects["interleaved"].any():
        handles.append(Line2D([], [], label="interleaved", **mark("nll", True)))
    legend_below(ax, handles, columns=3)
    return figure


def error_bars_by_objective(summary, metric="ece"):
    """Draws a metric of each objective: figure 5 of the paper.

    The accuracy is below each bar. Error bars are one standard error over
    seeds; a single run has none.
    """
    mean = summary.mean.dropna(subset=metric)
    error, factor = summary.error.loc[mean.index], metric_factor(metric)
    figure, ax = style.new_axes(0.8 + 0.4 * len(mean))
    for place, objective in enumerate(mean.index):
        color, _, _, hatch, filled = objective_style(objective)
        ax.barh(
            place,
            factor * mean.loc[objective, metric],
            height=0.48,
            xerr=factor * error.loc[objective, metric],
            error_kw={"capsize": 3, "linewidth": 1.2},
            facecolor=color if filled else "white",
            edgecolor="white" if filled else color,
            hatch=hatch,
        )
        text = f"accuracy {100 * mean.loc[objective, 'accuracy']:.1f}"
        if error.loc[objective, "accuracy"] >= 0:
            text += f" ± {100 * error.loc[objective, 'accuracy']:.1f}"
        ax.annotate(
            f"{text}%",
            (0, place + 0.26),
            xytext=(2, 0),
            textcoords="offset points",
            va="top",
            fontsize=8,
            color="#333333",
        )
    labels = [objective_label(name).replace(" (", "\n(") for name in mean.index]
    ax.set_yticks(range(len(mean)), labels, fontsize=9)
    ax.set_ylim(len(mean) - 0.25, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.set_xlim(left=0)
    ax.set_xlabel(metric_label(metric))
    return figure


def gains_by_training_gap(gains):
    """Draws when secondary losses help: rows of `statistics.gains`."""
    figure, ax = style.new_axes(3.8)
    for objective, points in gains.groupby("objective", sort=False):
        look = _line(objective) | {"linestyle": "none", "markersize": 4}
        x, y = 100 * points["training_gap"], 100 * points["change"]
        ax.plot(x, y, label=objective_label(objective), **look)
    for line in (ax.axhline, ax.axvline):
        line(0, color="black", linewidth=0.8, zorder=0)
    ax.set(
        xlabel="Training confidence - accuracy, primary loss (points)",
        ylabel="Change of the ECE (points)",
    )
    legend_below(ax)
    return figure


def accuracy_against_confidence(rows):
    """Draws the accuracy in each bin against its mean confidence.

    Networks are over-confident where their line is below the diagonal. Bins of
    fewer than 30 predictions are faint points beside the line.
    """
    figure, ax = style.new_axes(4.4)
    reliability.draw_diagonal(ax, label="calibrated")
    for objective, curve in curves_by_objective(rows).items():
        look = _line(objective) | {"markersize": 4, "linewidth": 1.3}
        x, y, many = *curve[:2], curve.count >= reliability.FEW
        ax.plot(x[many], y[many], label=objective_label(objective), **look)
        few = (curve.count > 0) & ~many
        look |= {"linestyle": "none", "alpha": reliability.FAINT}
        ax.plot(x[few], y[few], **look)
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="Confidence", ylabel="Accuracy")
    ax.grid(alpha=0.3)
    legend_below(ax)
    return figure


def curves_by_objective(rows):
    """Returns a reliability curve over the predictions of all seeds."""
    curves = {}
    for objective, bins in rows.groupby("objective", sort=False):
        sums = bins[["confidence", "accuracy"]].mul(bins["count"], axis=0)
        sums = sums.assign(count=bins["count"]).groupby(bins["bin"]).sum()
        means = sums.div(sums["count"], axis=0).to_numpy()[:, :2]
        curves[objective] = ReliabilityCurve(*means.T, sums["count"].to_numpy())
    return curves


def shift_lines(means, metric="ece", title=None):
    """Draws a metric against severity, with error bars.

    `means` is a frame of `severity`, `mean`, `error` (NaN for none), and
    `objective`, `calibrator` or both: a line each.
    """
    factor = metric_factor(metric)
    keys = [key for key in ("objective", "calibrator") if key in means]
    lines = list(means.groupby(keys, sort=False))
    figure, ax = style.new_axes(3.8, title)
    # Offsets keep the error bars of different lines apart.
    step = min(0.06, 0.5 / len(lines))
    for index, (key, points) in enumerate(lines):
        names = dict(zip(keys, key, strict=True))
        calibrator = names.get("calibrator", "none")
        if "objective" in names:
            look, label = _line(names["objective"]), objective_label(key[0])
            if calibrator != "none":
                label += f" + {calibrator_label(calibrator)}"
                look |= {"color": "black", "linestyle": "--"}
        else:
            look = {"color": style.OKABE_ITO[index % 7]}
            look["marker"] = "osD^vPX"[index % 7]
            label = calibrator_label(calibrator)
        points = points.sort_values("severity")
        points = points[["severity", "mean", "error"]].to_numpy(float)
        severity, mean, error = points.T
        ax.errorbar(
            severity + step * (index - (len(lines) - 1) / 2),
            factor * mean,
            yerr=factor * np.nan_to_num(error),
            markersize=4,
            capsize=2,
            linewidth=1.5,
            label=label,
            **look,
        )
    ticks = sorted(means["severity"].unique())
    ax.set_xticks(ticks, [str(tick) if tick else "clean" for tick in ticks])
    ax.set(xlabel="Severity of the shift", ylabel=metric_label(metric))
    ax.grid(axis="y", alpha=0.3)
    if len(lines) > 1:
        legend_below(ax)
    return figure


def legend_below(ax, handles=None, columns=None):
    """Adds a legend below the axes and increases the figure's height for it."""
    handles = handles or ax.get_legend_handles_labels()[0]
    # Longer labels would be cut off in a legend of two columns.
    longest = max(len(handle.get_label()) for handle in handles)
    columns = columns or (2 if longest <= 28 else 1)
    height = 0.19 * math.ceil(len(handles) / columns)
    ax.figure.set_figheight(ax.figure.get_figheight() + height)
    ax.figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=8,
    )


def _line(objective):
    """Returns arguments of `Axes.plot` and `Axes.errorbar`."""
    color, marker, linestyle, _, filled = objective_style(objective)
    return {
        "color": color,
        "marker": marker,
        "linestyle": linestyle,
        "markerfacecolor": color if filled else "white",
    }
