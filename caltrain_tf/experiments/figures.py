"""Figures of studies, in which an objective has one label, colour, marker."""

import io
import math

import pandas as pd

from caltrain_tf import files, losses
from caltrain_tf.experiments import config
from caltrain_tf.figures import reliability, style

# Colours of the losses, in the order of the paper's tables: Okabe and Ito's
# palette, and colours at least 15 CIELAB units from it and from each other for
# any colour vision. Other losses are grey.
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
# Of the primary losses.
_MARKERS = dict(nll="o", focal="s", mse="^", dual_focal="D", bsce_gra="v")
_CALIBRATORS = {"none": "no scaling", "dirichlet": "Dirichlet", "auto": "auto"}
# Labels and units. A calibrator's name may follow: `ece`, `ece_ts`.
_METRICS = {
    "accuracy": ("Accuracy", "%"),
    "ece_debiased": ("Debiased ECE", "%"),
    "ece_l1": ("ECE, l1", "%"),
    "ece": ("ECE", "%"),
    "train_accuracy": ("Training accuracy", "%"),
    "train_ece_l1": ("Training ECE, l1", "%"),
    # Only in rows of older versions.
    "train_ece": ("Training ECE of the last epoch's batches", "%"),
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
    label, unit_name = _label_and_unit(metric)
    return f"{label} ({unit_name})" if unit and unit_name else label


def metric_factor(metric):
    """Returns 100 for metrics that are shown in percent, otherwise 1."""
    return 100 if _label_and_unit(metric)[1] == "%" else 1


def _label_and_unit(metric):
    for key, (label, unit) in _METRICS.items():
        if metric == key:
            return label, unit
        if metric.startswith(f"{key}_"):
            calibrator = calibrator_label(metric.removeprefix(f"{key}_"))
            return f"{label} + {calibrator}", unit
    return metric, ""


def objective_style(objective):
    """Returns arguments of `Axes.plot`; interleaved training is hollow."""
    primary, secondary, interleaved = config.split_objective(objective)
    color = COLORS.get(secondary or primary, "#999999")
    return {
        "color": color,
        "marker": _MARKERS.get(primary, "P"),
        "markerfacecolor": "white" if interleaved else color,
        "markersize": 4,
    }


def effect_size_bars(effects):
    """Draws Cohen's d of every secondary loss: figure 1 of the paper.

    Bars are means of `statistics.effect_sizes` over settings and primaries,
    points the single values. Several metrics are bars side by side.
    """
    metrics = list(effects["metric"].unique())
    means = effects.pivot_table("d", "secondary", "metric", sort=False)
    means = means.sort_values(metrics[0], ascending=False)
    figure, ax = style.new_axes(1.1 + len(means) * (0.15 + 0.2 * len(metrics)))
    height, colors = 0.8 / len(metrics), ("#0072B2", "#99C7E0")
    ax.axvline(0, color="black", linewidth=0.8)
    for name, value, dashes in (("large", 0.8, "--"), ("huge", 2.0, ":")):
        look = {"color": style.GREY, "linestyle": dashes, "linewidth": 1}
        ax.axvline(value, label=f"{name}, {value}", **look)
    for index, metric in enumerate(metrics):
        offset = height * (index + 0.5) - 0.4
        places = offset + pd.Series(range(len(means)), means.index)
        look = {"color": colors[index], "label": metric_label(metric, False)}
        ax.barh(places, means[metric], 0.9 * height, **look)
        points = effects[effects["metric"] == metric]
        ax.plot(points["d"], places[points["secondary"]], "k.", markersize=4)
    ax.set_yticks(range(len(means)), map(loss_label, means.index))
    ax.invert_yaxis()
    ax.set_xlabel("Cohen's d (above 0: better than without)")
    legend_below(ax)
    return figure


def error_bars_by_objective(summary, metric="ece"):
    """Draws a metric, and the accuracy below it: figure 5 of the paper."""
    mean = summary.mean.dropna(subset=metric)
    error, factor = summary.error.loc[mean.index], metric_factor(metric)
    figure, ax = style.new_axes(0.8 + 0.4 * len(mean))
    looks = [objective_style(name) for name in mean.index]
    ax.barh(
        range(len(mean)),
        factor * mean[metric],
        height=0.48,
        xerr=factor * error[metric],
        error_kw={"capsize": 3, "linewidth": 1.2},
        color=[look["markerfacecolor"] for look in looks],
        edgecolor=[look["color"] for look in looks],
    )
    accuracies = 100 * mean["accuracy"], 100 * error["accuracy"]
    for place, (value, spread) in enumerate(zip(*accuracies, strict=True)):
        text = f"{value:.1f} ± {spread:.1f}" if spread >= 0 else f"{value:.1f}"
        text = f" accuracy {text}%"
        ax.text(0, place + 0.26, text, va="top", fontsize=8, color="#333333")
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
        look = objective_style(objective) | {"linestyle": "none"}
        x, y = 100 * points["training_gap"], 100 * points["change"]
        ax.plot(x, y, label=objective_label(objective), **look)
    for line in (ax.axhline, ax.axvline):
        line(0, color="black", linewidth=0.8, zorder=0)
    ax.set_xlabel("Training confidence - accuracy, primary loss (points)")
    ax.set_ylabel("Change of the ECE (points)")
    legend_below(ax)
    return figure


def accuracy_against_confidence(rows):
    """Draws the accuracy in each bin, over all seeds, against confidence."""
    figure, ax = style.new_axes(4.4)
    reliability.draw_diagonal(ax, label="calibrated")
    for objective, bins in rows.groupby("objective", sort=False):
        sums = bins[["confidence", "accuracy"]].mul(bins["count"], axis=0)
        sums = sums.assign(count=bins["count"]).groupby(bins["bin"]).sum()
        sums = sums[sums["count"] >= reliability.FEW]
        x, y = sums["confidence"], sums["accuracy"]
        look = objective_style(objective) | {"linewidth": 1.3}
        label = objective_label(objective)
        ax.plot(x / sums["count"], y / sums["count"], label=label, **look)
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="Confidence", ylabel="Accuracy")
    ax.grid(alpha=0.3)
    legend_below(ax)
    return figure


def shift_lines(means, metric="ece", title=None):
    """Draws a metric against severity, with error bars.

    `means` has `severity`, `mean`, `error` (NaN for none), and `objective`,
    `calibrator` or both: a line each.
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
            look, label = objective_style(key[0]), objective_label(key[0])
            if calibrator != "none":
                label += f" + {calibrator_label(calibrator)}"
                look |= {"color": "black", "linestyle": "--"}
        else:
            color, marker = style.OKABE_ITO[index], "osD^"[index]
            look = {"color": color, "marker": marker, "markersize": 4}
            label = calibrator_label(calibrator)
        points = points[["severity", "mean", "error"]].sort_values("severity")
        severity, mean, error = points.fillna(0).to_numpy().T
        x = severity + step * (index - (len(lines) - 1) / 2)
        look |= {"capsize": 2, "linewidth": 1.5, "label": label}
        ax.errorbar(x, factor * mean, factor * error, **look)
    ticks = sorted(means["severity"].unique())
    ax.set_xticks(ticks, [str(tick) if tick else "clean" for tick in ticks])
    ax.set(xlabel="Severity of the shift", ylabel=metric_label(metric))
    ax.grid(axis="y", alpha=0.3)
    if len(lines) > 1:
        legend_below(ax)
    return figure


def legend_below(ax):
    """Adds a legend below the axes and increases the figure's height for it."""
    labels = ax.get_legend_handles_labels()[1]
    # Longer labels would be cut off in a legend of two columns.
    columns = 2 if max(map(len, labels)) <= 28 else 1
    height = 0.19 * math.ceil(len(labels) / columns)
    ax.figure.set_figheight(ax.figure.get_figheight() + height)
    place = {"loc": "outside lower center", "ncols": columns}
    ax.figure.legend(**place, frameon=False, fontsize=8)
