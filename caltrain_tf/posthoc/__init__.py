"""Calibrators and prediction sets that are fitted after training."""

from caltrain_tf.posthoc.affine import (
    DirichletCalibration,
    MatrixScaling,
    StructuredMatrixScaling,
    StructuredVectorScaling,
    VectorScaling,
)
from caltrain_tf.posthoc.auto import AutoCalibration
from caltrain_tf.posthoc.base import read_file
from caltrain_tf.posthoc.binary import (
    BetaCalibration,
    IsotonicCalibration,
    PlattScaling,
)
from caltrain_tf.posthoc.compare import Comparison, compare
from caltrain_tf.posthoc.conformal import ConformalSets
from caltrain_tf.posthoc.ensemble import EnsembleTemperatureScaling
from caltrain_tf.posthoc.temperature import TemperatureScaling

CALIBRATORS = {
    calibrator.__name__: calibrator
    for calibrator in (
        TemperatureScaling,
        EnsembleTemperatureScaling,
        VectorScaling,
        MatrixScaling,
        DirichletCalibration,
        StructuredVectorScaling,
        StructuredMatrixScaling,
        PlattScaling,
        BetaCalibration,
        IsotonicCalibration,
        AutoCalibration,
    )
}


def load(path):
    """Reads a calibrator, or `ConformalSets`, that `save` wrote.

    Args:
        path: Path of the JSON file.

    Returns:
        A fitted object of the class that was saved.
    """
    return read_file(path, {**CALIBRATORS, "ConformalSets": ConformalSets})


__all__ = [
    "CALIBRATORS",
    "Comparison",
    "ConformalSets",
    "compare",
    "load",
    *CALIBRATORS,
]
