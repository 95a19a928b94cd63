"""KS, MMCE and SmoothECE."""

import numpy as np
import pytest

import caltrain_tf as ct
from caltrain_tf import metrics
from tests.metrics import naive
from tests.metrics.cases import CASES, tied


@pytest.mark.parametrize("case", CASES)
def test_ks_equals_the_definition(case):
    probs, labels = CASES[case]
    error = metrics.ks_error(probs, labels)
    assert isinstance(error, float)
    assert error == pytest.approx(naive.ks_error(probs, labels), abs=1e-7)


def test_ks_the_order_of_ties_does_not_matter():
    probs, labels = tied()
    order = np.random.default_rng(1).permutation(len(labels))
    assert metrics.ks_error(probs[order], labels[order]) == pytest.approx(
        metrics.ks_error(probs, labels), abs=1e-12
    )


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("width", [0.005, 0.4, 10])
def test_mmce_equals_the_double_sum(case, width):
    probs, labels = CASES[case]
    error = ct.metrics.mmce(probs, labels, width)
    expected = naive.mmce(probs, labels, width)
    assert error == pytest.approx(expected, abs=1e-9)


def test_mmce_is_the_root_of_the_loss():
    probs, labels = CASES["calibrated_10"]
    loss = float(ct.losses.mmce(labels, probs))
    assert ct.metrics.mmce(probs, labels) == pytest.approx(
        np.sqrt(loss), abs=1e-5
    )


def test_mmce_bad_width():
    with pytest.raises(ValueError, match="Received: width=0"):
        ct.metrics.mmce([[0.9, 0.1]], [0], width=0)


SMALL = sorted(set(CASES) - {"saturated", "all_correct"})


@pytest.mark.parametrize("case", SMALL)
def test_smooth_equals_direct_summation(case):
    probs, labels = CASES[case]
    probs, labels = probs[:200], labels[:200]
    error = metrics.smooth_calibration_error(probs, labels)
    # The smoothed error falls with the bandwidth, so that there is one value
    # at which the two are equal.
    assert naive.smoothed_error(probs, labels, error) == pytest.approx(
        error, rel=1e-4
    )


def test_smooth_excess_of_one_sign_is_not_smoothed_away():
    # Then the integral is the mean excess for any bandwidth.
    probs = np.tile([1.0, 0.0], (10, 1))
    labels = [0] * 7 + [1] * 3
    assert metrics.smooth_calibration_error(probs, labels) == pytest.approx(0.3)


def test_smooth_a_small_error_is_resolved():
    # Half of the examples are over-confident by 0.004, half under-confident,
    # 0.3 apart: far more than a bandwidth, so that both remain.
    confidence = np.repeat([0.6, 0.9], 1000)
    correct = np.repeat([1, 0, 1, 0], [604, 396, 896, 104])
    probs = np.stack([confidence, 1 - confidence], axis=1)
    error = metrics.smooth_calibration_error(probs, 1 - correct)
    assert error == pytest.approx(0.004, rel=1e-6)
