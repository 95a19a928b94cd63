"""Measures of calibration: exact on arrays, streaming in Keras."""

from caltrain_tf.metrics.accuracy import accuracy
from caltrain_tf.metrics.average_uncertainty import average_uncertainty
from caltrain_tf.metrics.bootstrap import bootstrap
from caltrain_tf.metrics.brier_score import brier_score
from caltrain_tf.metrics.calibration_error import calibration_error
from caltrain_tf.metrics.ks_error import ks_error
from caltrain_tf.metrics.marginal_calibration_error import (
    marginal_calibration_error,
)
from caltrain_tf.metrics.mean_sweep_calibration_error import (
    mean_sweep_calibration_error,
)
from caltrain_tf.metrics.mmce import mmce
from caltrain_tf.metrics.negative_log_likelihood import negative_log_likelihood
from caltrain_tf.metrics.reliability_curve import reliability_curve
from caltrain_tf.metrics.smooth_calibration_error import (
    smooth_calibration_error,
)
from caltrain_tf.metrics.streaming import AverageUncertainty
from caltrain_tf.metrics.streaming import BrierScore
from caltrain_tf.metrics.streaming import ExpectedCalibrationError
from caltrain_tf.metrics.streaming import KSError
from caltrain_tf.metrics.streaming import MarginalCalibrationError
from caltrain_tf.metrics.streaming import NegativeLogLikelihood
from caltrain_tf.metrics.streaming import SoftBinnedECE

__all__ = [
    "AverageUncertainty",
    "BrierScore",
    "ExpectedCalibrationError",
    "KSError",
    "MarginalCalibrationError",
    "NegativeLogLikelihood",
    "SoftBinnedECE",
    "accuracy",
    "average_uncertainty",
    "bootstrap",
    "brier_score",
    "calibration_error",
    "ks_error",
    "marginal_calibration_error",
    "mean_sweep_calibration_error",
    "mmce",
    "negative_log_likelihood",
    "reliability_curve",
    "smooth_calibration_error",
]
