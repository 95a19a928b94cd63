"""Matplotlib figures of predictions and of result rows."""

from caltrain_tf.figures.comparison import (
    accuracy_error_tradeoff,
    effect_size_bars,
    error_against_uncertainty,
    error_bars_by_objective,
    pareto_front,
)
from caltrain_tf.figures.reliability import (
    accuracy_against_confidence,
    group_reliability,
    reliability_diagram,
    reliability_diagrams,
    reliability_from_rows,
)
from caltrain_tf.figures.risk_coverage import risk_coverage
from caltrain_tf.figures.shift import shift_heatmap, shift_lines
from caltrain_tf.figures.style import (
    calibrator_label,
    loss_label,
    metric_label,
    objective_label,
    objective_style,
)

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
