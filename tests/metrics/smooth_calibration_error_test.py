import sys

import numpy as np
import pytest

from caltrain_tf import metrics
from tests.metrics import naive
from tests.metrics.cases import CASES
from tests.metrics.cases import probabilities

SMALL = sorted(set(CASES) - {"saturated", "all_correct"})


@pytest.mark.parametrize("case", SMALL)
def test_equals_direct_summation(case):
    probs, labels = CASES[case]
    probs, labels = probs[:200], labels[:200]
    error = metrics.smooth_calibration_error(probs, labels)
    # The smoothed error falls with the bandwidth, so that there is one value
    # at which the two are equal.
    assert naive.smoothed_error(probs, labels, error) == pytest.approx(
        error, rel=1e-4
    )


def test_examples_in_blocks_add_up(monkeypatch):
    probs, labels = CASES["calibrated_10"]
    whole = metrics.smooth_calibration_error(probs, labels)
    # The function of this name hides the module.
    module = sys.modules[metrics.smooth_calibration_error.__module__]
    monkeypatch.setattr(module, "ROWS_PER_BLOCK", 64)
    assert metrics.smooth_calibration_error(probs, labels) == pytest.approx(
        whole, abs=1e-9
    )


def test_excess_of_one_sign_is_not_smoothed_away():
    # Then the integral is the mean excess for any bandwidth.
    probs = np.tile([1.0, 0.0], (10, 1))
    labels = [0] * 7 + [1] * 3
    assert metrics.smooth_calibration_error(probs, labels) == pytest.approx(0.3)


def test_perfect_predictions():
    probs, labels = CASES["all_correct"]
    assert metrics.smooth_calibration_error(probs, labels) == pytest.approx(
        0, abs=1e-9
    )


def test_a_small_error_is_resolved():
    # Half of the examples are over-confident by 0.004, half under-confident,
    # 0.3 apart: far more than a bandwidth, so that both remain.
    confidence = np.repeat([0.6, 0.9], 1000)
    correct = np.repeat([1, 0, 1, 0], [604, 396, 896, 104])
    probs = np.stack([confidence, 1 - confidence], axis=1)
    error = metrics.smooth_calibration_error(probs, 1 - correct)
    assert error == pytest.approx(0.004, rel=1e-6)


def test_calibrated_networks_have_less_than_overconfident_ones():
    good = metrics.smooth_calibration_error(*probabilities(2000, 5))
    bad = metrics.smooth_calibration_error(
        *probabilities(2000, 5, temperature=0.5)
    )
    assert good < 0.03 < 0.1 < bad
