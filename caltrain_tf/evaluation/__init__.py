"""Predictions files, the shift benchmark and statistics over runs."""

from caltrain_tf.evaluation.predictions import load_predictions
from caltrain_tf.evaluation.predictions import save_predictions
from caltrain_tf.evaluation.results import final_results
from caltrain_tf.evaluation.results import fit_calibrators
from caltrain_tf.evaluation.results import measure
from caltrain_tf.evaluation.results import results_table
from caltrain_tf.evaluation.shift import compare_runs
from caltrain_tf.evaluation.shift import evaluate_shift
from caltrain_tf.evaluation.shift import means_by_severity
from caltrain_tf.evaluation.shift import read_shift_csv
from caltrain_tf.evaluation.shift import robustness_report
from caltrain_tf.evaluation.shift import severity_table
from caltrain_tf.evaluation.shift import shift_csv
from caltrain_tf.evaluation.statistics import best_within_accuracy
from caltrain_tf.evaluation.statistics import better_sign
from caltrain_tf.evaluation.statistics import cohens_d
from caltrain_tf.evaluation.statistics import effect_sizes
from caltrain_tf.evaluation.statistics import holm
from caltrain_tf.evaluation.statistics import masson_loftus_error
from caltrain_tf.evaluation.statistics import mean_effect_sizes
from caltrain_tf.evaluation.statistics import paired_test
from caltrain_tf.evaluation.statistics import significance_rows
from caltrain_tf.evaluation.statistics import standard_error
from caltrain_tf.evaluation.statistics import summarize_results
from caltrain_tf.evaluation.statistics import within_accuracy

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
