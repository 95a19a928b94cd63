"""Predictions files and the shift benchmark."""

from caltrain_tf.evaluation.predictions import (
    load_predictions,
    save_predictions,
)
from caltrain_tf.evaluation.results import (
    final_results,
    fit_calibrators,
    measure,
    results_table,
)
from caltrain_tf.evaluation.shift import (
    compare_runs,
    evaluate_shift,
    means_by_severity,
    read_shift_csv,
    robustness_report,
    severity_table,
    shift_csv,
)

__all__ = [
    "compare_runs",
    "evaluate_shift",
    "final_results",
    "fit_calibrators",
    "load_predictions",
    "means_by_severity",
    "measure",
    "read_shift_csv",
    "results_table",
    "robustness_report",
    "save_predictions",
    "severity_table",
    "shift_csv",
]
