import math

import numpy as np
import pytest
import tensorflow as tf

from caltrain_tf import metrics
from tests.metrics.cases import CASES
from tests.metrics.cases import probabilities
from tests.metrics.streaming.all_metrics_test import stream


@pytest.mark.parametrize("case", ["calibrated_10", "saturated", "tied"])
@pytest.mark.parametrize("norm", [1, 2, math.inf])
@pytest.mark.parametrize("estimator", ["bin", "label"])
def test_equal_width_is_exact(case, norm, estimator):
    probs, labels = CASES[case]
    options = {"norm": norm, "estimator": estimator, "binning": "equal_width"}
    value = stream(metrics.ExpectedCalibrationError(**options), labels, probs)
    expected = metrics.calibration_error(probs, labels, **options)
    # The largest single difference is known to the width of a cell.
    near = 1e-3 if (norm, estimator) == (math.inf, "label") else 1e-6
    assert value == pytest.approx(expected, abs=near)


@pytest.mark.parametrize(
    "options",
    [
        {"norm": 1},
        {"norm": math.inf},
        {"debias": True},
        {"num_bins": 1},
        {"num_bins": 50},
        {"estimator": "label"},
        {"estimator": "label", "norm": 1},
        {"binning": "equal_width", "debias": True},
    ],
)
@pytest.mark.parametrize("case", ["calibrated_10", "saturated", "tied"])
def test_options(case, options):
    probs, labels = CASES[case]
    value = stream(metrics.ExpectedCalibrationError(**options), labels, probs)
    expected = metrics.calibration_error(probs, labels, **options)
    assert value == pytest.approx(expected, abs=2e-4)


@pytest.mark.parametrize(
    "shape",
    [
        {"num_classes": 10, "scale": 1.2},
        {"num_classes": 2, "scale": 1.5},
        {"num_classes": 10, "scale": 3.0, "temperature": 0.2},
        # Nine of ten confidences are above 0.999.
        {"num_classes": 10, "scale": 15.0, "temperature": 0.1},
    ],
)
def test_equal_mass_within_2e_4(shape):
    probs, labels = probabilities(10_000, **shape)
    value = stream(metrics.ExpectedCalibrationError(), labels, probs, 1000)
    expected = metrics.calibration_error(probs, labels)
    assert value == pytest.approx(expected, abs=2e-4)
    if shape.get("temperature") == 0.1:
        assert np.mean(probs.max(axis=1) > 0.999) > 0.9


@pytest.mark.parametrize("binning", ["equal_mass", "equal_width"])
def test_does_not_drift_over_millions(binning):
    probs, labels = probabilities(10_000, 10, scale=3.0, temperature=0.5)
    metric = metrics.ExpectedCalibrationError(binning=binning)
    update = tf.function(metric.update_state, jit_compile=True, autograph=False)
    batch = tf.constant(labels), tf.constant(probs)
    for _ in range(400):
        update(*batch)
    # Repeated 400 times, the bins of equal mass are nearly the same.
    expected = metrics.calibration_error(probs, labels, binning=binning)
    # Ten times the largest error seen.
    near = 1e-6 if binning == "equal_width" else 4e-5
    assert float(metric.result()) == pytest.approx(expected, abs=near)


def test_a_stream_of_one_value_does_not_drift():
    # A plain float32 sum of 0.3 is off by percents after a few million.
    probs = np.tile(np.float32([0.3, 0.7]), (10_000, 1))
    labels = np.zeros(10_000, int)
    metric = metrics.ExpectedCalibrationError(binning="equal_width")
    update = tf.function(metric.update_state, autograph=False)
    batch = tf.constant(labels), tf.constant(probs)
    for _ in range(500):
        update(*batch)
    assert float(metric.result()) == pytest.approx(0.7, abs=1e-6)


def test_bad_options():
    with pytest.raises(ValueError, match="Received: norm=3"):
        metrics.ExpectedCalibrationError(norm=3)
