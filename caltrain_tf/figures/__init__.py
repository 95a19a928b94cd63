"""Matplotlib figures of predictions."""

from caltrain_tf.figures.reliability import (
    reliability_diagram,
    reliability_diagrams,
)
from caltrain_tf.figures.risk_coverage import risk_coverage

__all__ = ["reliability_diagram", "reliability_diagrams", "risk_coverage"]
