"""Matplotlib figures of predictions."""

from caltrain_tf.figures.reliability import (
    group_reliability,
    reliability_diagram,
    reliability_diagrams,
)
from caltrain_tf.figures.risk_coverage import risk_coverage

__all__ = [
    "group_reliability",
    "reliability_diagram",
    "reliability_diagrams",
    "risk_coverage",
]
