"""The verdict on classifiers whose miscalibration is known."""

import dataclasses
import json

import numpy as np
import pytest
from scipy import stats

import caltrain_tf as ct
from caltrain_tf.diagnose import _gap
from tests.posthoc.data import calibrated, softmax

OPTIONS = {"from_logits": True, "num_draws": 200}


def test_over_and_under_confidence_are_told_apart():
    logits, labels = calibrated(600, 3)
    for scale, direction in ((2.0, "over"), (0.5, "under")):
        found = ct.diagnose(scale * logits, labels, **OPTIONS)
        assert found.direction == f"{direction}-confident"
        assert found.verdict.startswith(f"Not calibrated: {direction}-conf")
        assert found.p_value == pytest.approx(1 / 201)
        assert found.ranges and not found.is_calibrated
        remedy = found.remedy
        assert remedy["nll_before"] == pytest.approx(found.nll)
        assert remedy["nll_after"] < found.nll
        assert found.advice.startswith(f"Fit {remedy['calibrator']} (")
    found = ct.diagnose(logits, labels, **OPTIONS)
    assert found.is_calibrated and found.direction == ""
    assert found.ranges == []
    assert "none of 3 stands out" in str(found)


def test_a_gain_by_chance_is_no_reason_to_calibrate():
    logits, labels = calibrated(1500, 4)
    found = ct.diagnose(logits, labels, **OPTIONS)
    assert found.is_calibrated and found.remedy["choice"] != "none"
    assert not found.remedy["gain_is_clear"]
    assert found.advice.startswith("Do nothing: with ")
    # Of a network that is not calibrated the same gain is worth its while.
    unsure = dataclasses.replace(found, p_value=0.01)
    assert unsure.advice.startswith("Fit ") and " and debiased" in unsure.advice
    worse = found.remedy | {"ece_before": 0.02, "ece_after": 0.03}
    unsure = dataclasses.replace(unsure, remedy=worse)
    assert " but debiased ECE 0.0200 becomes 0.0300." in unsure.advice


def test_the_direction_that_weighs_more_is_the_verdict():
    def confident(over, under):
        rows = [
            {"gap": 0.1, "count": over, "low": 0.5, "high": 0.6},
            {"gap": -0.05, "count": under, "low": 0.8, "high": 0.9},
        ]
        return dataclasses.replace(found, ranges=rows).direction

    logits, labels = calibrated(300, 3)
    found = ct.diagnose(3 * logits, labels, **OPTIONS)
    assert confident(1000, 100) == "mostly over-confident"
    assert confident(100, 1000) == "mostly under-confident"
    assert confident(100, 200).startswith("over- and under-confident")


def test_ranges_are_those_of_weighted_bins():
    logits, labels = calibrated(400, 3)
    weight = np.random.default_rng(0).integers(1, 4, 400)
    found = ct.diagnose(2 * logits, labels, sample_weight=weight, **OPTIONS)
    confidence = softmax(2 * logits).max(axis=1)
    correct = logits.argmax(axis=1) == labels
    for row in found.ranges:
        inside = (confidence >= row["low"]) & (confidence <= row["high"])
        assert row["count"] == inside.sum()
        gap = np.average((confidence - correct)[inside], weights=weight[inside])
        assert row["gap"] == pytest.approx(gap)


def test_numbers_are_those_of_the_metrics():
    logits, labels = calibrated(500, 3)
    weight = np.random.default_rng(0).integers(1, 4, 500)
    found = ct.diagnose(logits, labels, sample_weight=weight, **OPTIONS)
    options = {"from_logits": True, "sample_weight": weight}
    for value, metric in (
        (found.accuracy, ct.metrics.accuracy),
        (found.nll, ct.metrics.negative_log_likelihood),
        (found.brier, ct.metrics.brier_score),
        (found.ece, ct.metrics.calibration_error),
    ):
        assert value == pytest.approx(metric(logits, labels, **options))
    assert found.parts["brier"] == (
        ct.metrics.score_decomposition(logits, labels, **options)._asdict()
    )
    test = ct.metrics.calibration_test(logits, labels, num_draws=200, **options)
    assert found.p_value == test.p_value
    assert found.ece_if_calibrated == pytest.approx(test.expected)
    low, high = found.ece_interval
    assert low <= found.ece_debiased <= high


def test_the_wrong_class_and_group_are_named():
    generator = np.random.default_rng(0)
    logits, labels = calibrated(2000, 4)
    groups = generator.choice(["old", "young"], 2000)
    # Class 2 is predicted with a confidence that only the young deserve.
    wrong = (groups == "old") & (logits.argmax(axis=1) == 2)
    labels[wrong] = generator.integers(0, 4, wrong.sum())
    found = ct.diagnose(logits, labels, groups=groups, **OPTIONS)
    assert found.classes[0]["name"] == "2" and found.groups[0]["name"] == "old"
    assert found.classes[0]["p_value"] < 0.001 < found.classes[1]["p_value"]
    assert found.groups[0]["gap"] > 0.05
    text = str(found)
    assert "Predicted class 2" in text and "Group old" in text
    assert "Group young" not in text and "stand out" not in text
    found = dataclasses.replace(found, classes=6 * found.classes[:1])
    assert "6 of 6 stand out; these 5 have the largest gaps" in str(found)
    with pytest.raises(ValueError, match="`probs` must hold at least 2 ex"):
        ct.diagnose(logits[:1], labels[:1], **OPTIONS)


def test_other_shapes_are_the_two_dimensional_case():
    logits, labels = calibrated(400, 2)
    pairs = softmax(3 * logits)
    options = {"num_draws": 50}
    expected = ct.diagnose(pairs, labels, **options)
    for probs, ids, more in (
        (pairs[:, 1], labels, {}),
        (
            pairs[:, 1].reshape(100, 4),
            labels.reshape(100, 4),
            {"multi_label": True},
        ),
        (
            np.append(pairs, [[np.nan, 0.5]], axis=0),
            np.append(labels, -1),
            {"ignore_class": -1},
        ),
    ):
        found = ct.diagnose(probs, ids, **options, **more)
        assert found.ece == pytest.approx(expected.ece)
        assert found.parts["nll"] == pytest.approx(expected.parts["nll"])
        assert found.remedy["nll_after"] == pytest.approx(
            expected.remedy["nll_after"], rel=1e-3
        )


def test_text_html_figure_and_json():
    logits, labels = calibrated(300, 3)
    found = ct.diagnose(3 * logits, labels, **OPTIONS)
    lines = str(found).splitlines()
    assert lines[0] == found.verdict and lines[-1] == found.advice
    assert f"{found.ece:.4f}; by chance" in str(found)
    assert found.verdict in found._repr_html_()
    assert found._repr_html_().count("<tr>") == len(lines) - 2
    values = json.loads(json.dumps(found.to_dict()))
    assert values["ece"] == found.ece and values["verdict"] == found.verdict
    figure = found.figure()
    assert f"{100 * found.ece:.2f}" in figure.axes[0].get_title("right")


def test_p_values_of_gaps_are_not_too_small():
    # 300 sets of 30 predictions of a confidence near 1, where few errors are
    # expected and a normal approximation fails.
    generator = np.random.default_rng(0)
    weight = np.ones(30)
    for low in (0.5, 0.98):
        p_values = []
        for _ in range(300):
            confidence = generator.uniform(low, 1, 30)
            correct = generator.random(30) < confidence
            p_values.append(_gap("", confidence, correct, weight)["p_value"])
        for level in (0.05, 0.01):
            count = np.sum(np.array(p_values) <= level)
            assert stats.binom.sf(count - 1, 300, level) > 0.001


def test_a_binary_problem_is_judged_by_the_probability_of_class_1():
    # Errors of both predicted classes cancel in the confidence.
    generator = np.random.default_rng(0)
    probs = generator.random(2000)
    labels = generator.random(2000) < probs**2
    found = ct.diagnose(probs, labels, num_draws=100)
    assert found.direction == "probabilities of class 1 are too high"
    assert found.verdict.startswith(f"Not calibrated: {found.direction} (p = ")
    assert "Probability of 1, 0." in str(found)
    labels = generator.random(2000) < 1 / (1 + (1 / probs - 1) ** 2)
    found = ct.diagnose(probs, labels, num_draws=100)
    assert found.direction == "under-confident"
