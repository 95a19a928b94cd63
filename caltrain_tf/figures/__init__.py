"""Rows in, matplotlib figures out."""

from caltrain_tf.figures.accuracy_against_confidence import (
    accuracy_against_confidence,
)
from caltrain_tf.figures.accuracy_error_tradeoff import accuracy_error_tradeoff
from caltrain_tf.figures.colors import objective_style
from caltrain_tf.figures.effect_size_bars import effect_size_bars
from caltrain_tf.figures.error_against_uncertainty import (
    error_against_uncertainty,
)
from caltrain_tf.figures.error_bars import error_bars_by_objective
from caltrain_tf.figures.groups import group_reliability
from caltrain_tf.figures.labels import calibrator_label
from caltrain_tf.figures.labels import loss_label
from caltrain_tf.figures.labels import metric_label
from caltrain_tf.figures.labels import objective_label
from caltrain_tf.figures.pareto_front import pareto_front
from caltrain_tf.figures.reliability_diagram import reliability_diagram
from caltrain_tf.figures.reliability_diagram import reliability_diagrams
from caltrain_tf.figures.reliability_from_rows import reliability_from_rows
from caltrain_tf.figures.risk_coverage import risk_coverage
from caltrain_tf.figures.shift import shift_heatmap
from caltrain_tf.figures.shift import shift_lines

__all__ = [
    "accuracy_against_confidence",
    "accuracy_error_tradeoff",
    "calibrator_label",
    "effect_size_bars",
    "error_against_uncertainty",
    "error_bars_by_objective",
    "group_reliability",
    "loss_label",
    "metric_label",
    "objective_label",
    "objective_style",
    "pareto_front",
    "reliability_diagram",
    "reliability_diagrams",
    "reliability_from_rows",
    "risk_coverage",
    "shift_heatmap",
    "shift_lines",
]
