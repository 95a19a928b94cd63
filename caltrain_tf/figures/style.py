"""Colours and empty axes shared by all figures."""

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

# Okabe and Ito's palette, which is safe for colour-blind readers.
OKABE_ITO = (
    *("#0072B2", "#E69F00", "#009E73", "#CC79A7"),
    *("#56B4E9", "#D55E00", "#000000"),
)
GREY = "#666666"
# Width of a figure in inches, at which text of 8 points is readable if the
# figure fills the width of a phone.
WIDTH = 4.6


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
