"""Predictions files, the shift benchmark and statistics over runs."""

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
from caltrain_tf.evaluation.statistics import (
    best_within_accuracy,
    better_sign,
    cohens_d,
    effect_sizes,
    holm,
    masson_loftus_error,
    mean_effect_sizes,
    paired_test,
    significance_rows,
    standard_error,
    summarize_results,
    within_accuracy,
)

__all__ = [
    "best_within_accuracy",
    "better_sign",
    "cohens_d",
    "compare_runs",
    "effect_sizes",
    "evaluate_shift",
    "final_results",
    "fit_calibrators",
    "holm",
    "load_predictions",
    "masson_loftus_error",
    "mean_effect_sizes",
    "means_by_severity",
    "measure",
    "paired_test",
    "read_shift_csv",
    "results_table",
    "robustness_report",
    "save_predictions",
    "severity_table",
    "shift_csv",
    "significance_rows",
    "standard_error",
    "summarize_results",
    "within_accuracy",
]
