"""A trial of a tuning: an ordinary run, measured on the calibration split."""

import gc
import os
import time

import keras

from caltrain_tf import evaluation
from caltrain_tf import metrics
from caltrain_tf import training
from caltrain_tf.experiments.train import train


def run_trial(config, folder, data_dir=None, strategy=None, say=print):
    """Trains a run, or goes on with it, unless it is finished.

    Args:
        config: The trial's configuration.
        folder: The run's folder.
        data_dir: The folder of TensorFlow Datasets.
        strategy: Of `training.get_strategy`; its default if None.
        say: Called with lines for the user.

    Returns:
        `accuracy`, `ece` and `nll` on the calibration split. The test split is
        not looked at.
    """
    _wait_for(folder, config, say)
    if not os.path.exists(os.path.join(folder, "results.json")):
        # As in a process of its own: layers are named from the start again,
        # and the last trial's network is let go.
        keras.backend.clear_session()
        gc.collect()
        train(config, folder, data_dir, strategy)
    logits, labels = evaluation.load_predictions(
        os.path.join(folder, "predictions", "calibration.npz")
    )
    measures = {
        "accuracy": metrics.accuracy,
        "ece": metrics.calibration_error,
        "nll": metrics.negative_log_likelihood,
    }
    return {
        name: float(function(logits, labels, from_logits=True))
        for name, function in measures.items()
    }


def _wait_for(folder, config, say, seconds=5.0):
    """Waits while another process trains there, and compares configurations.

    That process was silent for so long that it was taken for gone.
    """
    said = False
    while True:
        try:
            with training.RunFolder(folder, config.to_dict()):
                return
        except ValueError as error:
            if "in use by another process" not in str(error):
                raise
            if not said:
                say(f"waiting for a process that trains there: {folder}")
            said = True
        time.sleep(seconds)
