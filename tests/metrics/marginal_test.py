import math
import re

import numpy as np
import pytest

from caltrain_tf import metrics
from tests.metrics import naive
from tests.metrics.binned_test import BINNINGS, VALUES, golden
from tests.metrics.cases import CASES, probabilities


@pytest.mark.parametrize("case", sorted(set(CASES) - {"calibrated_1000"}))
@pytest.mark.parametrize("binning", ["equal_mass", "equal_width"])
@pytest.mark.parametrize("norm", [1, 2, math.inf])
def test_equals_the_definition(case, binning, norm):
    probs, labels = CASES[case]
    for num_bins in (1, 15):
        error = metrics.marginal_calibration_error(
            probs, labels, num_bins, norm, binning
        )
        expected = naive.marginal_calibration_error(
            probs, labels, num_bins, norm, binning
        )
        assert error == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize(
    "name", ["allcorrect_k10_n1000", "calibrated_k2_n3000", "tiny_k10_n7"]
)
def test_equals_robustness_metrics(name):
    probs, labels = golden(name)
    pattern = re.compile(
        r"gce/binning=(\w+)/norm=l(\d)/num_bins=(\d+)/max_prob=False/"
        r"class_conditional=True/threshold=([\d.]+)"
    )
    compared = 0
    for key, expected in VALUES[name].items():
        if match := pattern.match(key):
            binning, norm, num_bins, threshold = match.groups()
            error = metrics.marginal_calibration_error(
                probs,
                labels,
                int(num_bins),
                int(norm),
                BINNINGS[binning],
                float(threshold),
            )
            assert error == pytest.approx(expected, abs=1e-12), key
            compared += 1
    assert compared == 24


@pytest.mark.parametrize("norm", [1, 2])
def test_the_sum_over_classes_is_under_the_root(norm):
    probs, labels = CASES["calibrated_10"]
    options = {"norm": norm, "binning": "equal_width"}
    mean = metrics.marginal_calibration_error(probs, labels, **options)
    total = metrics.marginal_calibration_error(
        probs, labels, reduce="sum", **options
    )
    assert total == pytest.approx(10 ** (1 / norm) * mean, rel=1e-12)
    with pytest.raises(ValueError, match="Received: reduce='max'"):
        metrics.marginal_calibration_error(probs, labels, reduce="max")


def test_a_threshold_above_everything_leaves_nothing():
    probs, labels = CASES["calibrated_10"]
    assert (
        metrics.marginal_calibration_error(probs, labels, threshold=1.0) == 0.0
    )


def test_does_not_write_into_its_input():
    probs, labels = probabilities(100, 10)
    before = probs.copy()
    metrics.marginal_calibration_error(probs, labels)
    transposed = np.asfortranarray(probs)
    metrics.marginal_calibration_error(transposed, labels)
    np.testing.assert_array_equal(probs, before)
    np.testing.assert_array_equal(transposed, before)
