"""Measures of calibration: exact on arrays, streaming in Keras."""

from caltrain_tf.metrics.binned import calibration_error
from caltrain_tf.metrics.binned import mean_sweep_calibration_error
from caltrain_tf.metrics.binned import reliability_curve
from caltrain_tf.metrics.bootstrap import bootstrap
from caltrain_tf.metrics.groupwise import groupwise
from caltrain_tf.metrics.marginal import marginal_calibration_error
from caltrain_tf.metrics.scores import accuracy
from caltrain_tf.metrics.scores import average_uncertainty
from caltrain_tf.metrics.scores import brier_score
from caltrain_tf.metrics.scores import negative_log_likelihood
from caltrain_tf.metrics.selective import aurc
from caltrain_tf.metrics.selective import coverage_at_risk
from caltrain_tf.metrics.selective import risk_coverage_curve
from caltrain_tf.metrics.sets import coverage
from caltrain_tf.metrics.sets import set_size
from caltrain_tf.metrics.streaming import AverageUncertainty
from caltrain_tf.metrics.streaming import BrierScore
from caltrain_tf.metrics.streaming import ExpectedCalibrationError
from caltrain_tf.metrics.streaming import KSError
from caltrain_tf.metrics.streaming import MarginalCalibrationError
from caltrain_tf.metrics.streaming import NegativeLogLikelihood
from caltrain_tf.metrics.streaming import SoftBinnedECE
from caltrain_tf.metrics.unbinned import ks_error
from caltrain_tf.metrics.unbinned import mmce
from caltrain_tf.metrics.unbinned import smooth_calibration_error

__all__ = [
    "AverageUncertainty",
    "BrierScore",
    "ExpectedCalibrationError",
    "KSError",
    "MarginalCalibrationError",
    "NegativeLogLikelihood",
    "SoftBinnedECE",
    "accuracy",
    "aurc",
    "average_uncertainty",
    "bootstrap",
    "brier_score",
    "calibration_error",
    "coverage",
    "coverage_at_risk",
    "groupwise",
    "ks_error",
    "marginal_calibration_error",
    "mean_sweep_calibration_error",
    "mmce",
    "negative_log_likelihood",
    "reliability_curve",
    "risk_coverage_curve",
    "set_size",
    "smooth_calibration_error",
]
