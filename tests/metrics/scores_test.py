import math

import numpy as np
import pytest

from caltrain_tf import metrics
from tests.metrics.binned_test import VALUES, golden
from tests.metrics.cases import CASES, sample, softmax


@pytest.mark.parametrize("case", CASES)
def test_equal_the_definitions(case):
    probs, labels = CASES[case]
    p, one_hot = probs.astype(float), np.eye(probs.shape[1])[labels]
    assert metrics.accuracy(probs, labels) == np.mean(p.argmax(1) == labels)
    nll = -np.mean(np.log(np.maximum(p[one_hot == 1], 1e-7)))
    value = metrics.negative_log_likelihood(probs, labels)
    assert value == pytest.approx(nll, abs=1e-6)
    brier = np.mean(np.sum((p - one_hot) ** 2, axis=1))
    # Float32 squares of 1000 classes: ten times the error seen.
    assert metrics.brier_score(probs, labels) == pytest.approx(brier, abs=3e-7)
    logarithm = np.log(np.where(p > 0, p, 1))
    entropy = -np.mean(np.sum(p * logarithm, axis=1))
    for arguments in ((probs, labels), (probs,)):
        value = metrics.average_uncertainty(*arguments)
        assert value == pytest.approx(entropy, abs=1e-6)


@pytest.mark.parametrize("name", VALUES)
def test_equal_robustness_metrics(name):
    probs, labels = golden(name)
    for metric, key in (
        (metrics.accuracy, "accuracy/accuracy"),
        (metrics.negative_log_likelihood, "nll/nll"),
        (metrics.brier_score, "brier/brier"),
    ):
        expected = VALUES[name][key]
        assert metric(probs, labels) == pytest.approx(expected, abs=3e-6), key


@pytest.mark.parametrize(
    "metric",
    [
        metrics.negative_log_likelihood,
        metrics.brier_score,
        metrics.average_uncertainty,
    ],
)
def test_logits_and_probabilities_agree(metric):
    logits, labels = sample(300, 7)
    expected = metric(softmax(logits.astype(float)), labels)
    value = metric(logits, labels, from_logits=True)
    assert value == pytest.approx(expected, abs=1e-6)


def test_accuracy_ties_go_to_the_first_class():
    assert metrics.accuracy([[0.5, 0.5], [0.5, 0.5]], [0, 1]) == 0.5


def test_nll_confident_logits_keep_their_digits():
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


def test_uncertainty_bounds():
    assert metrics.average_uncertainty(np.eye(3)) == 0
    assert metrics.average_uncertainty(np.full((2, 4), 0.25)) == pytest.approx(
        math.log(4)
    )
