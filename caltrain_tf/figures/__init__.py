"""Rows in, matplotlib figures out."""

from caltrain_tf.figures.reliability_diagram import reliability_diagram
from caltrain_tf.figures.reliability_diagram import reliability_diagrams
from caltrain_tf.figures.shift import shift_heatmap
from caltrain_tf.figures.shift import shift_lines

__all__ = [
    "reliability_diagram",
    "reliability_diagrams",
    "shift_heatmap",
    "shift_lines",
]
