import math

import numpy as np
import pytest

from caltrain_tf import metrics
from tests.metrics import naive
from tests.metrics.cases import CASES


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("norm", [1, 2, math.inf])
def test_equals_the_definition(case, norm):
    probs, labels = CASES[case]
    error = metrics.mean_sweep_calibration_error(probs, labels, norm)
    expected = naive.mean_sweep(probs, labels, norm)
    assert error == pytest.approx(expected, abs=1e-7)


def test_separable_examples_take_as_many_bins_as_there_are():
    confidence = np.linspace(0.6, 0.9, 2000)
    probs = np.stack([confidence, 1 - confidence], axis=1)
    labels = (confidence < 0.7).astype(int)
    error = metrics.mean_sweep_calibration_error(probs, labels)
    gaps = np.where(labels == 0, 1 - confidence, confidence)
    assert error == pytest.approx(math.sqrt(np.mean(gaps**2)))


def test_bad_norm():
    with pytest.raises(ValueError, match="Received: norm=0"):
        metrics.mean_sweep_calibration_error([[0.9, 0.1]], [0], norm=0)
