"""Metrics for `model.compile` whose state is a fixed-size set of sums."""

from caltrain_tf.metrics.streaming.average_uncertainty import AverageUncertainty
from caltrain_tf.metrics.streaming.brier_score import BrierScore
from caltrain_tf.metrics.streaming.expected_calibration_error import (
    ExpectedCalibrationError,
)
from caltrain_tf.metrics.streaming.ks_error import KSError
from caltrain_tf.metrics.streaming.marginal_calibration_error import (
    MarginalCalibrationError,
)
from caltrain_tf.metrics.streaming.negative_log_likelihood import (
    NegativeLogLikelihood,
)
from caltrain_tf.metrics.streaming.soft_binned_ece import SoftBinnedECE

__all__ = [
    "AverageUncertainty",
    "BrierScore",
    "ExpectedCalibrationError",
    "KSError",
    "MarginalCalibrationError",
    "NegativeLogLikelihood",
    "SoftBinnedECE",
]
