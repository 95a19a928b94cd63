import numpy as np
import pytest

import caltrain_tf as ct
from tests.metrics import naive
from tests.metrics.cases import CASES


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("width", [0.005, 0.4, 10])
def test_equals_the_double_sum(case, width):
    probs, labels = CASES[case]
    error = ct.metrics.mmce(probs, labels, width)
    expected = naive.mmce(probs, labels, width)
    assert error == pytest.approx(expected, abs=1e-9)


def test_is_the_root_of_the_loss():
    probs, labels = CASES["calibrated_10"]
    loss = float(ct.losses.mmce(labels, probs))
    assert ct.metrics.mmce(probs, labels) == pytest.approx(
        np.sqrt(loss), abs=1e-5
    )


def test_bad_width():
    with pytest.raises(ValueError, match="Received: width=0"):
        ct.metrics.mmce([[0.9, 0.1]], [0], width=0)
