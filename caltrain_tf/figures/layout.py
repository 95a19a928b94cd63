"""Empty figures, legends and checks that the figures share."""

import math

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

# Of a figure: narrow enough that text of 8 points can be read where the figure
# fills the width of a phone.
WIDTH = 4.6
GREY = "#666666"
_LEGEND_ROW = 0.19
# Of a label in a legend of two columns; longer ones would be cut off.
_MAX_CHARACTERS = 28


def new_axes(width, height):
    """A new figure of a size in inches, and its only axes."""
    # No pyplot: it would keep every figure of a long run.
    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    ax = figure.subplots()
    ax.spines[["top", "right"]].set_visible(False)
    return figure, ax


def legend_below(ax, handles=None, columns=None):
    """Adds a legend under the axes, and the height that it takes.

    Args:
        ax: Of a figure of `new_axes`.
        handles: What is in it; all that has a label by default.
        columns: Number of columns; by default two where they fit.
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
    """Raises unless there are rows, all of one setting.

    Args:
        name: The argument's name, for the error.
        rows: Dictionaries, with or without `setting`.
    """
    if not rows:
        raise ValueError(f"`{name}` must not be empty. Received: {rows!r}")
    settings = list(dict.fromkeys(row.get("setting") for row in rows))
    if len(settings) > 1:
        raise ValueError(
            f"`{name}` must be of one setting: other runs cannot be compared "
            f"in one figure. Received: settings={settings}"
        )
