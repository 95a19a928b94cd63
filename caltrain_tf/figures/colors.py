"""One colour and one marker an objective, the same in every figure."""

import zlib
from typing import NamedTuple

from caltrain_tf.figures.labels import split_objective

# Of Okabe and Ito's palette, told apart with any colour vision; those of the
# primary losses alone as far from them.
_PRIMARY_COLORS = {"nll": "#0072B2", "focal": "#332288", "mse": "#661100"}
_SECONDARY_COLORS = {
    "s_avuc": "#D55E00",
    "sb_ece": "#E69F00",
    "mmce": "#CC79A7",
    "avuc": "#009E73",
    "avuc_gs": "#56B4E9",
    "sb_marginal_ece": "#000000",
}
# For other losses; as far from those above.
_OTHER_COLORS = ("#882255", "#B0A060")
# Marker, line style and hatch.
_PRIMARY_STYLES = {
    "nll": ("o", "-", ""),
    "focal": ("s", "--", "///"),
    "mse": ("^", ":", "..."),
}
_OTHER_STYLES = (
    ("D", "-.", "xxx"),
    ("v", "-.", "---"),
    ("P", "-.", "+++"),
    ("X", "-.", "ooo"),
)


class ObjectiveStyle(NamedTuple):
    """Of `objective_style`, which says what the fields are."""

    color: str
    marker: str
    linestyle: str
    hatch: str
    filled: bool

    def line(self):
        """Arguments of `Axes.plot` and `Axes.errorbar`."""
        return {
            "color": self.color,
            "marker": self.marker,
            "linestyle": self.linestyle,
            "markerfacecolor": self.color if self.filled else "white",
        }

    def bar(self):
        """Arguments of `Axes.bar` and `Axes.barh`."""
        return {
            "facecolor": self.color if self.filled else "white",
            "edgecolor": "white" if self.filled else self.color,
            "hatch": self.hatch,
        }


def objective_style(objective):
    """How an objective is drawn, whatever else is in the figure.

    The colour is that of the secondary loss, or of the primary loss where it is
    alone, from a palette that is told apart with any colour vision. The marker,
    line style and hatch are those of the primary loss. Interleaved training is
    drawn hollow.

    Args:
        objective: As runs are called: `focal+sb_ece`. Losses of other names
            get one of the remaining colours and markers, always the same.

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
    known, name = (
        (_SECONDARY_COLORS, secondary)
        if secondary
        else (_PRIMARY_COLORS, primary)
    )
    color = known.get(name) or _pick(_OTHER_COLORS, name)
    style = _PRIMARY_STYLES.get(primary) or _pick(_OTHER_STYLES, primary)
    return ObjectiveStyle(color, *style, filled=not interleaved)


def _pick(choices, name):
    # `hash` of text differs from process to process.
    return choices[zlib.crc32(name.encode()) % len(choices)]
