"""Figures of the shift benchmark."""

import collections

import numpy as np

from caltrain_tf.figures import layout
from caltrain_tf.figures.colors import objective_style
from caltrain_tf.figures.labels import calibrator_label
from caltrain_tf.figures.labels import metric_factor
from caltrain_tf.figures.labels import metric_label
from caltrain_tf.figures.labels import objective_label

# Of calibrators: Okabe and Ito's palette, told apart with any colour vision.
_COLORS = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#D55E00",
    "#000000",
)
_MARKERS = "osD^vPX"


def shift_lines(means, metric="ece", title=None):
    """Draws a metric against severity, one line a calibrator or objective.

    Args:
        means: Dictionaries with `severity`, `mean`, `error` (NaN for none) and
            one of `calibrator` and `objective`, as of
            `evaluation.means_by_severity` and `evaluation.compare_runs`.
        metric: What they are of.
        title: What is written above.

    Returns:
        A `matplotlib.figure.Figure`.

    Example:
        >>> import caltrain_tf as ct
        >>> means = [
        ...     {"severity": s, "calibrator": c, "mean": 0.1 * s, "error": 0.01}
        ...     for s in (0, 1, 2)
        ...     for c in ("none", "ts")
        ... ]
        >>> figure = ct.figures.shift_lines(means)
        >>> [text.get_text() for text in figure.axes[0].get_legend().texts]
        ['no scaling', 'TS']
    """
    if not means:
        raise ValueError(f"`means` must not be empty. Received: {means!r}")
    factor = metric_factor(metric)
    lines = collections.defaultdict(list)
    for row in means:
        name = row.get("objective") or row["calibrator"]
        lines[name].append((row["severity"], row["mean"], row["error"]))
    is_objective = "objective" in means[0]
    figure, ax = layout.new_axes(layout.WIDTH, 3.8)
    for index, (name, points) in enumerate(lines.items()):
        severities, values, errors = np.array(sorted(points), float).T
        # Side by side, so that bars of lines that touch stay apart.
        step = min(0.06, 0.5 / len(lines))
        offset = step * (index - (len(lines) - 1) / 2)
        ax.errorbar(
            severities + offset,
            factor * values,
            yerr=factor * np.nan_to_num(errors),
            markersize=4,
            capsize=2,
            linewidth=1.5,
            **(_objective(name) if is_objective else _calibrator(name, index)),
        )
    ticks = sorted({row["severity"] for row in means})
    ax.set_xticks(ticks, [str(tick) if tick else "clean" for tick in ticks])
    ax.set(xlabel="Severity of the shift", ylabel=metric_label(metric))
    ax.set_title(title or "")
    ax.grid(axis="y", alpha=0.3)
    if len(lines) > 1 and is_objective:
        layout.legend_below(ax)
    elif len(lines) > 1:
        ax.legend(frameon=False)
    return figure


def shift_heatmap(rows, metric="ece", calibrator="none", title=None):
    """Draws a metric as a map of corruption and severity.

    Args:
        rows: Of `evaluation.evaluate_shift`.
        metric: Which metric.
        calibrator: Which calibrator.
        title: What is written above.

    Returns:
        A `matplotlib.figure.Figure`.
    """
    cells = {
        (row["corruption"], row["severity"]): row["value"]
        for row in rows
        if row["metric"] == metric
        and row["calibrator"] == calibrator
        and row["severity"] > 0
    }
    if not cells:
        raise ValueError(
            "`rows` must hold corrupted sets with the metric and calibrator. "
            f"Received: metric={metric!r}, calibrator={calibrator!r}"
        )
    names = list(dict.fromkeys(name for name, _ in cells))
    severities = sorted({severity for _, severity in cells})
    factor = metric_factor(metric)
    values = np.array(
        [
            [factor * cells.get((name, level), np.nan) for level in severities]
            for name in names
        ]
    )
    figure, ax = layout.new_axes(4.6, 1.2 + 0.27 * len(names))
    ax.spines[["top", "right"]].set_visible(True)
    image = ax.imshow(values, cmap="cividis", aspect="auto")
    middle = (np.nanmin(values) + np.nanmax(values)) / 2
    digits = 1 if factor == 100 else 2
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            ax.text(
                column,
                row,
                f"{value:.{digits}f}",
                ha="center",
                va="center",
                fontsize=8,
                color="black" if value > middle else "white",
            )
    ax.set_xticks(range(len(severities)), severities)
    ax.set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
    ax.set_xlabel("Severity of the shift")
    scaling = calibrator_label(calibrator)
    ax.set_title(title or f"{metric_label(metric)}, {scaling}")
    figure.colorbar(image, ax=ax)
    return figure


def _objective(name):
    style = objective_style(name).line()
    return {**style, "label": objective_label(name)}


def _calibrator(name, index):
    return {
        "color": _COLORS[index % len(_COLORS)],
        "marker": _MARKERS[index % len(_MARKERS)],
        "label": calibrator_label(name),
    }
