"""Figures of the shift benchmark."""

import collections

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

# Of Okabe and Ito's palette, told apart with any colour vision.
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
_TITLES = {
    "ece": "ECE (%)",
    "accuracy": "Accuracy (%)",
    "nll": "NLL",
    "brier": "Brier score",
}
_IN_PERCENT = ("ece", "accuracy")


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
    factor = 100 if metric in _IN_PERCENT else 1
    lines = collections.defaultdict(list)
    for row in means:
        name = row.get("objective") or _label(row["calibrator"])
        lines[name].append((row["severity"], row["mean"], row["error"]))
    figure, ax = _new_axes(5.2, 3.8)
    for index, (name, points) in enumerate(lines.items()):
        severities, values, errors = np.array(sorted(points), float).T
        # Side by side, so that bars of lines that touch stay apart.
        offset = 0.06 * (index - (len(lines) - 1) / 2)
        ax.errorbar(
            severities + offset,
            factor * values,
            yerr=factor * np.nan_to_num(errors),
            color=_COLORS[index % len(_COLORS)],
            marker=_MARKERS[index % len(_MARKERS)],
            markersize=4,
            capsize=2,
            linewidth=1.5,
            label=name,
        )
    ticks = sorted({row["severity"] for row in means})
    ax.set_xticks(ticks, [str(tick) if tick else "clean" for tick in ticks])
    ax.set(xlabel="Severity of the shift", ylabel=_TITLES.get(metric, metric))
    ax.set_title(title or "")
    ax.grid(axis="y", alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)
    if len(lines) > 1:
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
    factor = 100 if metric in _IN_PERCENT else 1
    values = np.array(
        [
            [factor * cells.get((name, level), np.nan) for level in severities]
            for name in names
        ]
    )
    figure, ax = _new_axes(4.6, 1.2 + 0.27 * len(names))
    image = ax.imshow(values, cmap="cividis", aspect="auto")
    middle = (np.nanmin(values) + np.nanmax(values)) / 2
    digits = 1 if metric in _IN_PERCENT else 2
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
    scaling = _label(calibrator)
    ax.set_title(title or f"{_TITLES.get(metric, metric)}, {scaling}")
    figure.colorbar(image, ax=ax)
    return figure


def _label(calibrator):
    if calibrator == "none":
        return "no scaling"
    return calibrator.replace("_", "-").upper()


def _new_axes(width, height):
    # No pyplot: it would keep every figure of a long run.
    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots()
