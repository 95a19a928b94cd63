"""Figure 1 of the paper: what each secondary loss does to ECE."""

import collections

import numpy as np
from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from caltrain_tf.figures import layout
from caltrain_tf.figures.colors import objective_style
from caltrain_tf.figures.labels import loss_label
from caltrain_tf.figures.labels import metric_label

# Sizes of effects as the paper calls them.
_MARKS = {0.8: "large", 2.0: "huge"}
_STRENGTHS = (1.0, 0.6, 0.35)
_INTERLEAVED = "\n(interleaved)"


def effect_size_bars(effects, title=None):
    """Draws Cohen's d of every secondary loss, the best at the top.

    A bar is the mean over settings and primary losses, a small mark one of
    them. Lines at 0.8 and 2.0 show what is called a large and a huge effect.

    Args:
        effects: Of `evaluation.effect_sizes`; those of several metrics
            together (`ece`, `ece_ts`) give bars side by side. Effects that are
            NaN, of single runs, are left out.
        title: What is written above.

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
    values = collections.defaultdict(list)
    for row in effects:
        if not np.isnan(row["d"]):
            key = row["secondary"], row["interleaved"], row["metric"]
            values[key].append((row["d"], row["primary"]))
    if not values:
        raise ValueError(
            "`effects` must hold a d that is a number, which takes two seeds. "
            f"Received: effects={effects!r}"
        )
    metrics = list(dict.fromkeys(metric for *_, metric in values))
    groups = _best_first(values, metrics)
    height = 0.8 / len(metrics)
    size = len(groups) * (0.15 + 0.2 * len(metrics))
    figure, ax = layout.new_axes(layout.WIDTH, 1.1 + size)
    for (secondary, interleaved, metric), points in values.items():
        place = groups.index((secondary, interleaved)) - 0.4
        place += height * (metrics.index(metric) + 0.5)
        name = f"+{secondary}" + "-interleaved" * interleaved
        style = objective_style(name)
        strength = _STRENGTHS[metrics.index(metric) % len(_STRENGTHS)]
        ax.barh(
            place,
            np.mean([d for d, _ in points]),
            height=0.9 * height,
            facecolor="none" if interleaved else to_rgba(style.color, strength),
            edgecolor=to_rgba(style.color, strength) if interleaved else "none",
        )
        for d, primary in points:
            marker = objective_style(primary).marker
            ax.plot(d, place, **_mark(marker))
    _draw_axes(ax, groups, title)
    _draw_legend(ax, effects, metrics)
    return figure


def _best_first(values, metrics):
    means = {}
    for metric in reversed(metrics):
        for (secondary, interleaved, name), points in values.items():
            if name == metric:
                mean = np.mean([d for d, _ in points])
                means[secondary, interleaved] = mean
    return sorted(means, key=lambda group: -means[group])


def _mark(marker):
    return {
        "marker": marker,
        "markersize": 4,
        "markerfacecolor": "white",
        "markeredgecolor": "black",
        "markeredgewidth": 0.7,
        "linestyle": "none",
    }


def _draw_axes(ax, groups, title):
    for value, name in _MARKS.items():
        ax.axvline(value, color=layout.GREY, linestyle="--", linewidth=1)
        ax.annotate(
            f"{name} {value}",
            (value, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, 2),
            textcoords="offset points",
            # Away from each other, since the lines may be close.
            ha="right" if value < 1 else "left",
            fontsize=8,
            color=layout.GREY,
        )
    ax.axvline(0, color="black", linewidth=0.8)
    labels = [loss_label(s) + _INTERLEAVED * i for s, i in groups]
    ax.set_yticks(range(len(groups)), labels)
    ax.invert_yaxis()
    ax.set_xlabel("Cohen's d (above 0: better than without)")
    if title:
        ax.set_title(title, pad=16)


def _draw_legend(ax, effects, metrics):
    primaries = dict.fromkeys(row["primary"] for row in effects)
    handles = [
        Patch(
            color=to_rgba(layout.GREY, strength),
            label=metric_label(name, False),
        )
        for name, strength in zip(metrics, _STRENGTHS, strict=False)
    ]
    handles += [
        Line2D(
            [],
            [],
            label=loss_label(name),
            **_mark(objective_style(name).marker),
        )
        for name in primaries
    ]
    layout.legend_below(ax, handles, columns=3)
