import numpy as np
import pytest

from caltrain_tf import metrics
from tests.metrics import naive
from tests.metrics.cases import CASES
from tests.metrics.cases import tied


@pytest.mark.parametrize("case", CASES)
def test_equals_the_definition(case):
    probs, labels = CASES[case]
    error = metrics.ks_error(probs, labels)
    assert isinstance(error, float)
    assert error == pytest.approx(naive.ks_error(probs, labels), abs=1e-7)


def test_the_order_of_ties_does_not_matter():
    probs, labels = tied()
    order = np.random.default_rng(1).permutation(len(labels))
    assert metrics.ks_error(probs[order], labels[order]) == pytest.approx(
        metrics.ks_error(probs, labels), abs=1e-12
    )


def test_a_constant_bias_is_the_error():
    probs = np.tile([0.8, 0.2], (10, 1))
    labels = [0] * 5 + [1] * 5
    assert metrics.ks_error(probs, labels) == pytest.approx(0.3)
