"""Temperature scaling by likelihood or by calibration error."""

import math
import warnings
from functools import partial

from caltrain_tf import layers
from caltrain_tf.checks import check_choice
from caltrain_tf.checks import check_count
from caltrain_tf.checks import check_number
from caltrain_tf.metrics.calibration_error import error_of_confidence
from caltrain_tf.posthoc import likelihood
from caltrain_tf.posthoc import search
from caltrain_tf.posthoc.base import Calibrator
from caltrain_tf.posthoc.soft_binned_error import SoftBinnedError

OBJECTIVES = ("nll", "sb_ece", "hb_ece")
# Temperatures that are tried in a stretch of ratio 1.25. A hard-binned error
# jumps wherever two examples change places, and needs more of them.
SMOOTH_GRID, JUMPING_GRID = 12, 60


class TemperatureScaling(Calibrator):
    """Divides the logits by one number, which keeps the predicted classes.

    The temperature is the global optimum of the objective on the given data:

    - `"nll"`: the negative log-likelihood (TS).
    - `"sb_ece"`: the soft-binned calibration error in the l2 norm
      (TS-SB-ECE). Bins of `binning="bin"` (equation 11 of the paper) are the
      default here, because they are what the hard-binned error measures;
      `"label"` (equation 12) also counts the spread of confidences inside a
      bin, and so prefers temperatures that are too small.
    - `"hb_ece"`: the hard-binned error, l2 over bins of equal mass
      (TS-HB-ECE).

    Where the data determine no temperature, as when no example is
    misclassified, `fit` warns and chooses a finite one.

    Args:
        objective: One of the above.
        num_bins: Number of bins, for the last two.
        binning: `"bin"` or `"label"`, for `"sb_ece"`.
        soft_temperature: Softness of the bins, for `"sb_ece"`.

    Attributes:
        temperature_: The temperature.

    Example:
        >>> import numpy as np
        >>> import caltrain_tf as ct
        >>> logits = np.array([[4.0, 0.0], [0.0, 4.0], [4.0, 0.0], [4.0, 0.0]])
        >>> scaler = ct.posthoc.TemperatureScaling().fit(logits, [0, 1, 0, 1])
        >>> round(scaler.temperature_, 4)  # 3 of 4 are right: 4 / log(3)
        3.641
        >>> scaler.predict_proba(logits)[0].round(4).tolist()
        [0.75, 0.25]

    Reference:
        Guo et al., "On Calibration of Modern Neural Networks", 2017;
        Karandikar et al., "Soft Calibration Objectives for Neural Networks",
        2021, section 5.
    """

    option_names = ("objective", "num_bins", "binning", "soft_temperature")
    fitted_names = ("temperature_",)

    def __init__(
        self,
        objective="nll",
        *,
        num_bins=15,
        binning="bin",
        soft_temperature=0.01,
    ):
        """See the class."""
        check_choice("objective", objective, OBJECTIVES)
        check_count("num_bins", num_bins)
        check_choice("binning", binning, ("bin", "label"))
        check_number("soft_temperature", soft_temperature, low=0)
        self.objective = objective
        self.num_bins = num_bins
        self.binning = binning
        self.soft_temperature = soft_temperature

    def _fit(self, rows):
        view = likelihood.overview(rows)
        if self.objective == "nll":
            inverse = likelihood.fit(rows, view)
        else:
            inverse = likelihood.without_optimum(rows, view)
            if inverse is None:
                inverse = self._search(rows, view)
        self.temperature_ = 1.0 / inverse

    def _search(self, rows, view):
        if self.objective == "sb_ece":
            error = SoftBinnedError(
                self.num_bins, self.soft_temperature, self.binning
            )
            grid, lowest = SMOOTH_GRID, search.lowest_smooth
        else:
            error = partial(error_of_confidence, num_bins=self.num_bins)
            grid, lowest = JUMPING_GRID, search.lowest_by_levels
        centre = likelihood.start(rows, view)
        errors = search.Search(rows, error, centre, view.spread, grid)
        position = lowest(errors, rows)
        if not errors.is_inside(position):
            warnings.warn(
                "The calibration error falls up to the last temperature that "
                f"was tried. Using {math.exp(-position):g}.",
                stacklevel=4,
            )
        return math.exp(position)

    def _transform(self, logits):
        return logits * logits.dtype.type(1.0 / self.temperature_)

    def _layer(self):
        return layers.Temperature(self.temperature_, name="temperature_scaling")
