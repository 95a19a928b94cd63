"""Risk, coverage and the area under their curve."""

import itertools
import math

import numpy as np
import pytest

from caltrain_tf import metrics
from tests.metrics import naive
from tests.metrics.cases import CASES, probabilities


def waves(num_examples, num_classes):
    """Predictions of a formula, every fourth one wrong; no ties."""
    i, k = np.arange(num_examples)[:, None], np.arange(num_classes)[None]
    logits = 3 * np.sin(1.7 * i + 2.3 * k) + np.cos(0.9 * i * k)
    probs = np.exp(logits - logits.max(axis=1, keepdims=True))
    probs /= probs.sum(axis=1, keepdims=True)
    predicted = probs.argmax(axis=1)
    wrong = np.arange(num_examples) % 4 == 0
    return probs, (predicted + wrong) % num_classes


# Of `AURC` and `CovAtxRisk` of torch-uncertainty 0.13, which are float32.
GOLDEN = {
    (7, 2): (0.18769840585688746, {0.01: 3 / 7, 0.22: 3 / 7, 0.5: 1.0}),
    (50, 3): (0.301062707256163, {0.1: 0.02, 0.22: 0.2, 0.5: 1.0}),
    (200, 10): (0.24569781655301853, {0.01: 0.005, 0.22: 0.06, 0.5: 1.0}),
}


@pytest.mark.parametrize("size", GOLDEN)
def test_equals_torch_uncertainty(size):
    probs, labels = waves(*size)
    area, coverages = GOLDEN[size]
    # The largest difference over 100 random batches is 6e-9.
    assert metrics.aurc(probs, labels) == pytest.approx(area, abs=6e-8)
    for risk, coverage in coverages.items():
        value = metrics.coverage_at_risk(probs, labels, risk)
        assert value == pytest.approx(coverage, abs=1e-12)


def curve_in_order(probs, labels, order):
    """Risks of the first 1, 2, ... examples of an order."""
    _, correct = naive.top(probs, labels)
    wrong, risks = 0, []
    for count, row in enumerate(order, start=1):
        wrong += 1 - correct[row]
        risks.append(wrong / count)
    return risks


def area(risks):
    """By the trapezoidal rule, over its width."""
    if len(risks) == 1:
        return risks[0]
    pairs = itertools.pairwise(risks)
    return sum((a + b) / 2 for a, b in pairs) / (len(risks) - 1)


@pytest.mark.parametrize("case", ["calibrated_2", "calibrated_10"])
def test_equals_the_definition(case):
    probs, labels = CASES[case]
    confidence, _ = naive.top(probs, labels)
    assert len(set(confidence)) == len(confidence)
    order = sorted(range(len(labels)), key=lambda row: -confidence[row])
    risks = curve_in_order(probs, labels, order)
    curve = metrics.risk_coverage_curve(probs, labels)
    np.testing.assert_allclose(curve.risk, risks, atol=1e-12)
    counts = np.arange(1, len(labels) + 1)
    np.testing.assert_allclose(curve.coverage, counts / len(labels))
    np.testing.assert_array_equal(curve.threshold, confidence[order])
    value = metrics.aurc(probs, labels)
    assert isinstance(value, float)
    assert value == pytest.approx(area(risks), abs=1e-12)
    for risk in (0.0, 0.1, 0.3, 1.0):
        allowed = [k for k, r in zip(counts, risks, strict=True) if r <= risk]
        value = metrics.coverage_at_risk(probs, labels, risk)
        if allowed:
            assert value == allowed[-1] / len(labels)
        else:
            assert math.isnan(value)


def test_ties_are_the_mean_over_all_orders():
    probs = np.array([0.9, 0.7, 0.7, 0.7, 0.6, 0.6])
    probs = np.stack([probs, 1 - probs], axis=1)
    labels = np.array([0, 1, 0, 1, 0, 1])
    orders = [
        (0, *first, *second)
        for first in itertools.permutations((1, 2, 3))
        for second in itertools.permutations((4, 5))
    ]
    areas = [area(curve_in_order(probs, labels, order)) for order in orders]
    assert np.ptp(areas) > 0.1
    assert metrics.aurc(probs, labels) == pytest.approx(np.mean(areas))
    curve = metrics.risk_coverage_curve(probs, labels)
    np.testing.assert_allclose(curve.coverage, [1 / 6, 4 / 6, 1])
    np.testing.assert_allclose(curve.risk, [0, 1 / 2, 1 / 2])
    # No threshold lets only one of the three pass, though one is right.
    assert metrics.coverage_at_risk(probs, labels, 0.4) == 1 / 6


@pytest.mark.parametrize(
    "labels, area, coverage",
    [([0, 0, 0], 0.0, 1.0), ([1, 1, 1], 1.0, math.nan), ([0], 0.0, 1.0)],
)
def test_edges(labels, area, coverage):
    for probs in ([0.9, 0.8, 0.7], [0.9, 0.9, 0.9], [1.0, 1.0, 0.5]):
        rows = np.stack([probs, np.subtract(1, probs)], axis=1)[: len(labels)]
        assert metrics.aurc(rows, labels) == area
        value = metrics.coverage_at_risk(rows, labels)
        assert value == pytest.approx(coverage, nan_ok=True)


def test_the_smallest_weight_is_one_example():
    probs, labels = probabilities(40, 3)
    weight = np.random.default_rng(0).integers(1, 6, 40)
    repeated = np.repeat(probs, weight, 0), np.repeat(labels, weight)
    weighted = {"sample_weight": 0.3 * weight}
    value = metrics.aurc(probs, labels, **weighted)
    assert value == pytest.approx(metrics.aurc(*repeated), abs=1e-12)
    for risk in (0.1, 0.3):
        value = metrics.coverage_at_risk(probs, labels, risk, **weighted)
        expected = metrics.coverage_at_risk(*repeated, risk)
        assert value == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("small", [1e-14, 1e-310])
def test_weights_may_differ_by_any_factor(small):
    probs, labels = probabilities(200, 3)
    weight = np.ones(200)
    weight[50] = small
    weighted = {"sample_weight": weight}
    # In the limit, an integral over the risks.
    value = metrics.aurc(probs, labels, **weighted)
    assert value == pytest.approx(metrics.aurc(probs, labels), abs=0.02)
    value = metrics.coverage_at_risk(probs, labels, 0.3, **weighted)
    expected = metrics.coverage_at_risk(probs, labels, 0.3)
    assert value == pytest.approx(expected, abs=0.02)
