"""Labels, colours and empty axes shared by all figures."""

import math
import zlib
from typing import NamedTuple

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

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
OKABE_ITO = (
    *("#0072B2", "#E69F00", "#009E73", "#CC79A7"),
    *("#56B4E9", "#D55E00", "#000000"),
)
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

# Width of a figure in inches, at which text of 8 points is readable if the
# figure fills the width of a phone.
WIDTH = 4.6
GREY = "#666666"
_LEGEND_ROW = 0.19
# Longer labels would be cut off in a legend of two columns.
_MAX_CHARACTERS = 28


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


def new_figure(width, height, **options):
    """Returns an empty figure; width and height are in inches."""
    # pyplot would keep every figure of a long run in memory.
    figure = Figure(figsize=(width, height), dpi=120, **options)
    FigureCanvasAgg(figure)
    return figure


def new_axes(height, title=None):
    """Returns a new figure of a height in inches, and its axes."""
    figure = new_figure(WIDTH, height, layout="constrained")
    ax = figure.subplots()
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_title(title or "")
    return figure, ax


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


def _split_metric(metric):
    for base in _METRICS:
        if metric == base or metric.startswith(f"{base}_"):
            return base, metric[len(base) + 1 :]
    return metric, ""


def _pick(choices, name):
    # Unlike `hash`, `crc32` is the same in every process.
    return choices[zlib.crc32(name.encode()) % len(choices)]
