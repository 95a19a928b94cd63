"""The options that binned calibration errors share."""

import math

from caltrain_tf.checks import check_choice
from caltrain_tf.checks import check_count

BINNINGS = ("equal_mass", "equal_width")
ESTIMATORS = ("bin", "label")
NORMS = (1, 2, math.inf)


def check_bins(num_bins, norm, binning, estimator="bin", debias=False):
    """Raises unless a binned calibration error can have these options."""
    check_count("num_bins", num_bins)
    check_choice("norm", norm, NORMS)
    check_choice("binning", binning, BINNINGS)
    check_choice("estimator", estimator, ESTIMATORS)
    if debias and (norm != 2 or estimator != "bin"):
        raise ValueError(
            '`debias=True` is defined for `norm=2, estimator="bin"` only. '
            f"Received: norm={norm!r}, estimator={estimator!r}"
        )
