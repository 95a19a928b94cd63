"""The verdict on classifiers whose miscalibration is known."""

import json
import sys

import numpy as np
import pytest
from scipy import stats

import caltrain_tf as ct
from caltrain_tf.diagnose import _gap
from tests.posthoc.data import calibrated, softmax

OPTIONS = {"from_logits": True, "num_draws": 200}


def test_over_and_under_confidence_are_told_apart():
    logits, labels = calibrated(1500, 4)
    for scale, direction in ((2.0, "over"), (0.5, "under")):
        found = ct.diagnose(scale * logits, labels, **OPTIONS)
        assert found.direction == f"{direction}-confident"
        assert found.verdict.startswith(f"Not calibrated: {direction}-conf")
        assert found.p_value == pytest.approx(1 / 201)
        assert found.ranges and not found.is_calibrated
        remedy = found.remedy
        assert remedy["nll_before"] == pytest.approx(found.nll)
        assert remedy["nll_after"] < found.nll
        assert "StructuredMatrixScaling" in found.advice
    found = ct.diagnose(logits, labels, **OPTIONS)
    assert found.is_calibrated and found.direction == ""
    assert found.ranges == []
    assert "none of 4 stands out" in str(found)


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
    logits, labels = calibrated(3000, 4)
    groups = generator.choice(["old", "young"], 3000)
    # Class 2 is predicted with a confidence that only the young deserve.
    wrong = (groups == "old") & (logits.argmax(axis=1) == 2)
    labels[wrong] = generator.integers(0, 4, wrong.sum())
    found = ct.diagnose(
        logits, labels, groups=groups, class_names=list("abcd"), **OPTIONS
    )
    assert found.classes[0]["name"] == "c" and found.groups[0]["name"] == "old"
    assert found.classes[0]["p_value"] < 0.001 < found.classes[1]["p_value"]
    assert found.groups[0]["gap"] > 0.05
    text = str(found)
    assert "Predicted class c" in text and "Group old" in text
    assert "Group young" not in text
    with pytest.raises(ValueError, match="`class_names` must be 4 names"):
        ct.diagnose(logits, labels, class_names=["a"], **OPTIONS)


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
    # 600 sets of 30 predictions of a confidence near 1, where few errors are
    # expected and a normal approximation fails.
    generator = np.random.default_rng(0)
    weight = np.ones(30)
    for low in (0.5, 0.98):
        p_values = []
        for _ in range(600):
            confidence = generator.uniform(low, 1, 30)
            correct = generator.random(30) < confidence
            p_values.append(_gap("", confidence, correct, weight)["p_value"])
        for level in (0.05, 0.01):
            count = np.sum(np.array(p_values) <= level)
            assert stats.binom.sf(count - 1, 600, level) > 0.001


def test_the_package_imports_no_matplotlib_for_it():
    assert ct.diagnose.__module__ == "caltrain_tf.diagnose"
    assert callable(ct.diagnose) and "caltrain_tf.diagnose" in sys.modules


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
    assert ct.diagnose(probs, labels).direction == "under-confident"
