"""Measures of calibration: exact on arrays, streaming in Keras."""

from caltrain_tf.metrics.binned import (
    calibration_error,
    marginal_calibration_error,
    mean_sweep_calibration_error,
    reliability_curve,
)
from caltrain_tf.metrics.decomposition import (
    calibration_test,
    score_decomposition,
)
from caltrain_tf.metrics.scores import (
    accuracy,
    average_uncertainty,
    brier_score,
    negative_log_likelihood,
)
from caltrain_tf.metrics.selective import (
    aurc,
    coverage_at_risk,
    risk_coverage_curve,
)
from caltrain_tf.metrics.sets import coverage, set_size
from caltrain_tf.metrics.streaming import (
    AverageUncertainty,
    BrierScore,
    ExpectedCalibrationError,
    KSError,
    MarginalCalibrationError,
    NegativeLogLikelihood,
    SoftBinnedECE,
)
from caltrain_tf.metrics.subsets import bootstrap, groupwise
from caltrain_tf.metrics.unbinned import (
    ks_error,
    mmce,
    smooth_calibration_error,
)

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
    "calibration_test",
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
    "score_decomposition",
    "set_size",
    "smooth_calibration_error",
]
