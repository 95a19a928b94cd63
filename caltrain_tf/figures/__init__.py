"""Rows in, matplotlib figures out."""

from caltrain_tf.figures.reliability_diagram import reliability_diagram
from caltrain_tf.figures.reliability_diagram import reliability_diagrams

__all__ = ["reliability_diagram", "reliability_diagrams"]
