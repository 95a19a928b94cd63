"""Calibrators that are fitted after training."""

from caltrain_tf.posthoc import saving
from caltrain_tf.posthoc.comparing import compare
from caltrain_tf.posthoc.comparison import Comparison
from caltrain_tf.posthoc.dirichlet import DirichletCalibration
from caltrain_tf.posthoc.ensemble import EnsembleTemperatureScaling
from caltrain_tf.posthoc.matrix import MatrixScaling
from caltrain_tf.posthoc.temperature import TemperatureScaling
from caltrain_tf.posthoc.vector import VectorScaling

CALIBRATORS = {
    calibrator.__name__: calibrator
    for calibrator in (
        TemperatureScaling,
        EnsembleTemperatureScaling,
        VectorScaling,
        MatrixScaling,
        DirichletCalibration,
    )
}


def load(path):
    """Reads a calibrator that `save` wrote.

    Args:
        path: Of the JSON file.

    Returns:
        A fitted calibrator of the class that was saved.
    """
    return saving.read(path, CALIBRATORS)


__all__ = ["CALIBRATORS", "Comparison", "compare", "load", *CALIBRATORS]
