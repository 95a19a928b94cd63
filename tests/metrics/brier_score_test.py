import numpy as np
import pytest

from caltrain_tf import metrics
from tests.metrics.calibration_error_test import VALUES
from tests.metrics.calibration_error_test import golden
from tests.metrics.cases import CASES
from tests.metrics.cases import sample
from tests.metrics.cases import softmax


@pytest.mark.parametrize("case", CASES)
def test_equals_the_definition(case):
    probs, labels = CASES[case]
    one_hot = np.eye(probs.shape[1])[labels]
    expected = np.mean(np.sum((probs.astype(float) - one_hot) ** 2, axis=1))
    assert metrics.brier_score(probs, labels) == pytest.approx(
        # Float32 squares of 1000 classes: ten times the error seen.
        expected,
        abs=3e-7,
    )


@pytest.mark.parametrize("name", VALUES)
def test_equals_robustness_metrics(name):
    assert metrics.brier_score(*golden(name)) == pytest.approx(
        VALUES[name]["brier/brier"], abs=1e-6
    )


def test_of_logits():
    logits, labels = sample(300, 7)
    expected = metrics.brier_score(softmax(logits.astype(float)), labels)
    assert metrics.brier_score(
        logits, labels, from_logits=True
    ) == pytest.approx(expected, abs=1e-6)
