"""Calibrators that are fitted after training."""

from caltrain_tf.posthoc import saving
from caltrain_tf.posthoc.temperature import TemperatureScaling

CALIBRATORS = {
    calibrator.__name__: calibrator for calibrator in (TemperatureScaling,)
}


def load(path):
    """Reads a calibrator that `save` wrote.

    Args:
        path: Of the JSON file.

    Returns:
        A fitted calibrator of the class that was saved.
    """
    return saving.read(path, CALIBRATORS)


__all__ = ["CALIBRATORS", "TemperatureScaling", "load"]
