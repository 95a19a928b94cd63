import math

import numpy as np
import pytest

from caltrain_tf import metrics
from tests.metrics.cases import CASES
from tests.metrics.cases import sample
from tests.metrics.cases import softmax


@pytest.mark.parametrize("case", CASES)
def test_equals_the_definition(case):
    probs, labels = CASES[case]
    p = probs.astype(float)
    logarithm = np.log(np.where(p > 0, p, 1))
    expected = -np.mean(np.sum(p * logarithm, axis=1))
    assert metrics.average_uncertainty(probs, labels) == pytest.approx(
        expected, abs=1e-6
    )
    assert metrics.average_uncertainty(probs) == pytest.approx(
        expected, abs=1e-6
    )


def test_of_logits():
    logits, _ = sample(300, 7)
    expected = metrics.average_uncertainty(softmax(logits.astype(float)))
    assert metrics.average_uncertainty(
        logits, from_logits=True
    ) == pytest.approx(expected, abs=1e-6)


def test_bounds():
    assert metrics.average_uncertainty(np.eye(3)) == 0
    assert metrics.average_uncertainty(np.full((2, 4), 0.25)) == pytest.approx(
        math.log(4)
    )
