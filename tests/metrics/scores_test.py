import math

import numpy as np
import pytest

from caltrain_tf import metrics
from tests.metrics.binned_test import VALUES, golden
from tests.metrics.cases import CASES, sample, softmax


@pytest.mark.parametrize("case", CASES)
def test_accuracy_equals_the_definition(case):
    probs, labels = CASES[case]
    assert metrics.accuracy(probs, labels) == (
        (probs.argmax(axis=1) == labels).mean()
    )


@pytest.mark.parametrize("name", VALUES)
def test_accuracy_equals_robustness_metrics(name):
    assert metrics.accuracy(*golden(name)) == pytest.approx(
        VALUES[name]["accuracy/accuracy"], abs=1e-6
    )


def test_accuracy_ties_go_to_the_first_class():
    assert metrics.accuracy([[0.5, 0.5], [0.5, 0.5]], [0, 1]) == 0.5


@pytest.mark.parametrize("case", CASES)
def test_nll_equals_the_definition(case):
    probs, labels = CASES[case]
    of_label = probs[np.arange(len(labels)), labels].astype(float)
    expected = -np.mean(np.log(np.maximum(of_label, 1e-7)))
    assert metrics.negative_log_likelihood(probs, labels) == pytest.approx(
        expected, abs=1e-6
    )


@pytest.mark.parametrize("name", VALUES)
def test_nll_equals_robustness_metrics(name):
    assert metrics.negative_log_likelihood(*golden(name)) == pytest.approx(
        VALUES[name]["nll/nll"], abs=3e-6
    )


def test_nll_of_logits():
    logits, labels = sample(300, 7)
    expected = metrics.negative_log_likelihood(
        softmax(logits.astype(float)), labels
    )
    assert metrics.negative_log_likelihood(
        logits, labels, from_logits=True
    ) == pytest.approx(expected, abs=1e-6)


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


@pytest.mark.parametrize("case", CASES)
def test_brier_equals_the_definition(case):
    probs, labels = CASES[case]
    one_hot = np.eye(probs.shape[1])[labels]
    expected = np.mean(np.sum((probs.astype(float) - one_hot) ** 2, axis=1))
    assert metrics.brier_score(probs, labels) == pytest.approx(
        # Float32 squares of 1000 classes: ten times the error seen.
        expected,
        abs=3e-7,
    )


@pytest.mark.parametrize("name", VALUES)
def test_brier_equals_robustness_metrics(name):
    assert metrics.brier_score(*golden(name)) == pytest.approx(
        VALUES[name]["brier/brier"], abs=1e-6
    )


def test_brier_of_logits():
    logits, labels = sample(300, 7)
    expected = metrics.brier_score(softmax(logits.astype(float)), labels)
    assert metrics.brier_score(
        logits, labels, from_logits=True
    ) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_uncertainty_equals_the_definition(case):
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


def test_uncertainty_of_logits():
    logits, _ = sample(300, 7)
    expected = metrics.average_uncertainty(softmax(logits.astype(float)))
    assert metrics.average_uncertainty(
        logits, from_logits=True
    ) == pytest.approx(expected, abs=1e-6)


def test_uncertainty_bounds():
    assert metrics.average_uncertainty(np.eye(3)) == 0
    assert metrics.average_uncertainty(np.full((2, 4), 0.25)) == pytest.approx(
        math.log(4)
    )
