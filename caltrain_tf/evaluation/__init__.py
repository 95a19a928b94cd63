"""Predictions files, the shift benchmark and statistics over runs."""

from caltrain_tf.evaluation.predictions import load_predictions
from caltrain_tf.evaluation.predictions import save_predictions
from caltrain_tf.evaluation.results import final_results
from caltrain_tf.evaluation.results import fit_calibrators
from caltrain_tf.evaluation.results import measure
from caltrain_tf.evaluation.results import results_table
from caltrain_tf.evaluation.shift import evaluate_shift
from caltrain_tf.evaluation.shift_file import read_shift_csv
from caltrain_tf.evaluation.shift_file import shift_csv
from caltrain_tf.evaluation.shift_report import robustness_report
from caltrain_tf.evaluation.shift_report import severity_table
from caltrain_tf.evaluation.statistics import compare_runs
from caltrain_tf.evaluation.statistics import masson_loftus_error
from caltrain_tf.evaluation.statistics import means_by_severity
from caltrain_tf.evaluation.statistics import standard_error
from caltrain_tf.evaluation.within_accuracy import best_within_accuracy
from caltrain_tf.evaluation.within_accuracy import within_accuracy

__all__ = [
    "best_within_accuracy",
    "compare_runs",
    "evaluate_shift",
    "final_results",
    "fit_calibrators",
    "load_predictions",
    "masson_loftus_error",
    "means_by_severity",
    "measure",
    "read_shift_csv",
    "results_table",
    "robustness_report",
    "save_predictions",
    "severity_table",
    "shift_csv",
    "standard_error",
    "within_accuracy",
]
