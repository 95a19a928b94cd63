import itertools
import math

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from caltrain_tf import metrics
from caltrain_tf.metrics.binned import ESTIMATORS
from caltrain_tf.metrics.streaming import histogram
from tests.metrics.cases import CASES, probabilities
from tests.metrics.streaming.all_metrics_test import stream


@pytest.mark.parametrize("case", ["calibrated_10", "saturated", "tied"])
def test_equal_width_is_exact(case):
    probs, labels = CASES[case]
    for norm, estimator in itertools.product((1, 2, math.inf), ESTIMATORS):
        options = {
            "norm": norm,
            "estimator": estimator,
            "binning": "equal_width",
        }
        metric = metrics.ExpectedCalibrationError(**options)
        expected = metrics.calibration_error(probs, labels, **options)
        # The largest single difference is known to the width of a cell.
        near = 1e-3 if (norm, estimator) == (math.inf, "label") else 1e-6
        value = stream(metric, labels, probs)
        assert value == pytest.approx(expected, abs=near), options


@pytest.mark.parametrize(
    "options",
    [
        {"norm": 1},
        {"norm": math.inf},
        {"debias": True},
        {"num_bins": 50},
        {"estimator": "label"},
        {"estimator": "label", "norm": 1},
        {"binning": "equal_width", "debias": True},
    ],
)
def test_options(options):
    for case in ("calibrated_10", "tied"):
        probs, labels = CASES[case]
        metric = metrics.ExpectedCalibrationError(**options)
        expected = metrics.calibration_error(probs, labels, **options)
        value = stream(metric, labels, probs)
        # The contract. Probabilities come in, so that what is left is how a
        # cell is divided, the same on every machine.
        assert value == pytest.approx(expected, abs=2e-4), case


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
    value = stream(metrics.ExpectedCalibrationError(), labels, probs)
    expected = metrics.calibration_error(probs, labels)
    assert value == pytest.approx(expected, abs=2e-4)
    if shape.get("temperature") == 0.1:
        assert np.mean(probs.max(axis=1) > 0.999) > 0.9


@pytest.mark.parametrize("binning", ["equal_mass", "equal_width"])
def test_does_not_drift_over_a_hundred_million(binning):
    probs, labels = probabilities(10_000, 10, scale=3.0, temperature=0.5)
    metric = metrics.ExpectedCalibrationError(binning=binning)
    metric.update_state(labels, probs)
    for _ in range(14):
        metric.merge_state([metric])
    update = tf.function(metric.update_state, jit_compile=True, autograph=False)
    batch = tf.constant(labels[:500]), tf.constant(probs[:500])
    for _ in range(100):
        update(*batch)
    count = float(ops.sum(histogram.total(metric.sums)[:, 0]))
    assert count == 10_000 * 2**14 + 100 * 500
    # Repeated that often, the bins of equal mass are nearly the same, and the
    # batches that came last are 3e-4 of all.
    expected = metrics.calibration_error(probs, labels, binning=binning)
    assert float(metric.result()) == pytest.approx(expected, abs=2e-4)


def test_a_stream_of_one_value_does_not_drift():
    # A plain float32 sum of 0.3 is off by percents after a few million.
    probs = np.tile(np.float32([0.3, 0.7]), (10_000, 1))
    labels = np.zeros(10_000, int)
    metric = metrics.ExpectedCalibrationError(binning="equal_width")
    update = tf.function(metric.update_state, autograph=False)
    batch = tf.constant(labels), tf.constant(probs)
    for _ in range(200):
        update(*batch)
    assert float(metric.result()) == pytest.approx(0.7, abs=1e-6)


def test_bad_options():
    with pytest.raises(ValueError, match="Received: norm=3"):
        metrics.ExpectedCalibrationError(norm=3)
