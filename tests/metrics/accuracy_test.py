import pytest

from caltrain_tf import metrics
from tests.metrics.calibration_error_test import VALUES
from tests.metrics.calibration_error_test import golden
from tests.metrics.cases import CASES


@pytest.mark.parametrize("case", CASES)
def test_equals_the_definition(case):
    probs, labels = CASES[case]
    assert metrics.accuracy(probs, labels) == (
        (probs.argmax(axis=1) == labels).mean()
    )


@pytest.mark.parametrize("name", VALUES)
def test_equals_robustness_metrics(name):
    assert metrics.accuracy(*golden(name)) == pytest.approx(
        VALUES[name]["accuracy/accuracy"], abs=1e-6
    )


def test_ties_go_to_the_first_class():
    assert metrics.accuracy([[0.5, 0.5], [0.5, 0.5]], [0, 1]) == 0.5
