import math

import pytest

from caltrain_tf import metrics
from tests.metrics.cases import CASES, probabilities
from tests.metrics.streaming.all_metrics_test import stream


@pytest.mark.parametrize("binning", ["equal_mass", "equal_width"])
@pytest.mark.parametrize("norm", [1, 2, math.inf])
def test_options(norm, binning):
    options = {"norm": norm, "binning": binning, "num_bins": 10}
    for case in ("calibrated_10", "saturated", "tied"):
        probs, labels = CASES[case]
        metric = metrics.MarginalCalibrationError(**options)
        expected = metrics.marginal_calibration_error(probs, labels, **options)
        near = 1e-3 if norm == math.inf else 3e-4
        value = stream(metric, labels, probs)
        assert value == pytest.approx(expected, abs=near), case


def test_the_number_of_classes_cannot_change():
    metric = metrics.MarginalCalibrationError(num_classes=3)
    probs, labels = probabilities(10, 4)
    with pytest.raises(ValueError, match="must have 3 classes.*4 classes"):
        metric.update_state(labels, probs)
