"""Metrics for `model.compile` whose state is a fixed-size set of sums."""

from caltrain_tf.metrics.streaming.binned import ExpectedCalibrationError
from caltrain_tf.metrics.streaming.binned import KSError
from caltrain_tf.metrics.streaming.marginal import MarginalCalibrationError
from caltrain_tf.metrics.streaming.scores import AverageUncertainty
from caltrain_tf.metrics.streaming.scores import BrierScore
from caltrain_tf.metrics.streaming.scores import NegativeLogLikelihood
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
