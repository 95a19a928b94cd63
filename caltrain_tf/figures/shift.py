"""Figures of the shift benchmark."""

import numpy as np
import pandas as pd

from caltrain_tf.figures import style

_MARKERS = "osD^vPX"


def shift_lines(means, metric="ece", title=None):
    """Draws a metric against severity, one line per calibrator or objective.

    Args:
        means: Dictionaries with `severity`, `mean`, `error` (NaN for none) and
            one of `calibrator` and `objective`, as returned by
            `evaluation.means_by_severity` and `evaluation.compare_runs`.
        metric: Name of the metric.
        title: Title of the figure.

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
        >>> [text.get_text() for text in figure.legends[0].texts]
        ['no scaling', 'TS']
    """
    frame = pd.DataFrame(means)
    style.check_rows("means", frame)
    factor = style.metric_factor(metric)
    kind = "objective" if "objective" in frame else "calibrator"
    lines = list(frame.groupby(kind, sort=False))
    figure, ax = style.new_axes(3.8, title)
    # Offsets keep the error bars of different lines apart.
    step = min(0.06, 0.5 / len(lines))
    for index, (name, points) in enumerate(lines):
        points = points.sort_values("severity")
        offset = step * (index - (len(lines) - 1) / 2)
        if kind == "objective":
            look = style.objective_style(name).line()
            label = style.objective_label(name)
        else:
            color = style.OKABE_ITO[index % len(style.OKABE_ITO)]
            marker = _MARKERS[index % len(_MARKERS)]
            look = {"color": color, "marker": marker}
            label = style.calibrator_label(name)
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
    ax.set(xlabel="Severity of the shift", ylabel=style.metric_label(metric))
    ax.grid(axis="y", alpha=0.3)
    if len(lines) > 1:
        handles, _ = ax.get_legend_handles_labels()
        style.legend_below(ax, handles)
    return figure


def shift_heatmap(rows, metric="ece", calibrator="none", title=None):
    """Draws a metric as a heat map over corruption and severity.

    Args:
        rows: Rows, as `evaluation.evaluate_shift` returns them.
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
    factor = style.metric_factor(metric)
    cells = factor * frame.pivot(
        index="corruption", columns="severity", values="value"
    ).reindex(frame["corruption"].unique())
    scaling = style.calibrator_label(calibrator)
    title = title or f"{style.metric_label(metric)}, {scaling}"
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
