"""The options that binned calibration errors share."""

import math

from caltrain_tf.checks import check_choice
from caltrain_tf.checks import check_count
from caltrain_tf.checks import check_flag

BINNINGS = ("equal_mass", "equal_width")
ESTIMATORS = ("bin", "label")
NORMS = (1, 2, math.inf)


def check_bins(num_bins, norm, binning, estimator="bin", debias=False):
    """Returns the options of a binned calibration error as plain values."""
    num_bins = check_count("num_bins", num_bins)
    norm = check_choice("norm", norm, NORMS)
    binning = check_choice("binning", binning, BINNINGS)
    estimator = check_choice("estimator", estimator, ESTIMATORS)
    debias = check_flag("debias", debias)
    if debias and (norm != 2 or estimator != "bin"):
        raise ValueError(
            '`debias=True` is defined for `norm=2, estimator="bin"` only. '
            f"Received: norm={norm!r}, estimator={estimator!r}"
        )
    return num_bins, norm, binning, estimator, debias
