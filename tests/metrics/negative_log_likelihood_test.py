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
    of_label = probs[np.arange(len(labels)), labels].astype(float)
    expected = -np.mean(np.log(np.maximum(of_label, 1e-7)))
    assert metrics.negative_log_likelihood(probs, labels) == pytest.approx(
        expected, abs=1e-6
    )


@pytest.mark.parametrize("name", VALUES)
def test_equals_robustness_metrics(name):
    assert metrics.negative_log_likelihood(*golden(name)) == pytest.approx(
        VALUES[name]["nll/nll"], abs=3e-6
    )


def test_of_logits():
    logits, labels = sample(300, 7)
    expected = metrics.negative_log_likelihood(
        softmax(logits.astype(float)), labels
    )
    assert metrics.negative_log_likelihood(
        logits, labels, from_logits=True
    ) == pytest.approx(expected, abs=1e-6)


def test_confident_logits_keep_their_digits():
    logits = np.array([[30.0, 0.0], [0.0, 20.0]], "float32")
    expected = np.mean(np.log1p(np.exp([-30.0, -20.0])))
    assert metrics.negative_log_likelihood(
        logits, [0, 1], from_logits=True
    ) == pytest.approx(expected, rel=1e-5)
    # Logits are not clipped: an error costs as much as it does.
    assert metrics.negative_log_likelihood(
        logits[:1], [1], from_logits=True
    ) == pytest.approx(30)
    for dtype in ("float32", "float64"):
        assert (
            metrics.negative_log_likelihood(
                np.array([[1e4, -1e4]], dtype), [1], from_logits=True
            )
            == 20_000
        )
