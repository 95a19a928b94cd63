"""Metrics for `model.compile` whose state is a fixed-size set of sums."""

from caltrain_tf.metrics.streaming.binned import (
    ExpectedCalibrationError,
    KSError,
)
from caltrain_tf.metrics.streaming.marginal import MarginalCalibrationError
from caltrain_tf.metrics.streaming.scores import (
    AverageUncertainty,
    BrierScore,
    NegativeLogLikelihood,
)
from caltrain_tf.metrics.streaming.soft_binned import SoftBinnedECE

__all__ = [
    "AverageUncertainty",
    "BrierScore",
    "ExpectedCalibrationError",
    "KSError",
    "MarginalCalibrationError",
    "NegativeLogLikelihood",
    "SoftBinnedECE",
]
