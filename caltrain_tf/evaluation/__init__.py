"""Predictions files, the shift benchmark and statistics over runs."""

from caltrain_tf.evaluation.predictions import load_predictions
from caltrain_tf.evaluation.predictions import save_predictions
from caltrain_tf.evaluation.results import final_results
from caltrain_tf.evaluation.results import fit_calibrators
from caltrain_tf.evaluation.results import measure
from caltrain_tf.evaluation.results import results_table

__all__ = [
    "final_results",
    "fit_calibrators",
    "load_predictions",
    "measure",
    "results_table",
    "save_predictions",
]
