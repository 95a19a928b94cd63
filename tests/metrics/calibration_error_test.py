import json
import math
import pathlib
import re

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from caltrain_tf import metrics
from caltrain_tf.metrics import blocks
from tests.metrics import naive
from tests.metrics.cases import CASES
from tests.metrics.cases import probabilities
from tests.metrics.cases import sample

GOLDEN = pathlib.Path(__file__).parent / "golden"
VALUES = json.loads((GOLDEN / "rm_golden.json").read_text())["values"]
# Confidences of exactly 1.0, which robustness_metrics puts beyond all bins.
PHANTOM = ("saturated_k2_n1000", "ties_k2_n1000")
BINNINGS = {"adaptive": "equal_mass", "even": "equal_width"}


def golden(name):
    with np.load(GOLDEN / f"{name}.npz") as arrays:
        return arrays["probs"], arrays["labels"].astype(int)


@pytest.mark.parametrize("name", sorted(set(VALUES) - set(PHANTOM)))
def test_equals_robustness_metrics(name):
    probs, labels = golden(name)
    pattern = re.compile(
        r"gce/binning=(\w+)/norm=l(\d)/num_bins=(\d+)/max_prob=True/.*"
    )
    compared = 0
    for key, expected in VALUES[name].items():
        if match := pattern.match(key):
            binning, norm, num_bins = match.groups()
            error = metrics.calibration_error(
                probs, labels, int(num_bins), int(norm), BINNINGS[binning]
            )
            assert error == pytest.approx(expected, abs=1e-12), key
            compared += 1
        elif key.startswith("derived_mce"):
            binning = key.split("binning=")[1].split("/")[0]
            error = metrics.calibration_error(
                probs, labels, 15, math.inf, BINNINGS[binning]
            )
            assert error == pytest.approx(expected, abs=1e-12), key
            compared += 1
    assert compared >= 14


@pytest.mark.parametrize("name", PHANTOM)
@pytest.mark.parametrize("binning", ["equal_mass", "equal_width"])
def test_confidence_one_belongs_to_the_last_bin(name, binning):
    probs, labels = golden(name)
    assert (probs.max(axis=1) == 1).sum() > 200
    error = metrics.calibration_error(probs, labels, binning=binning)
    expected = naive.calibration_error(probs, labels, 15, 2, binning)
    assert error == pytest.approx(expected, abs=1e-12)


def test_the_phantom_bin_of_robustness_metrics_is_not_copied():
    # 0.97 and 1.0 share the last of 15 equal bins: half of them are correct.
    probs = np.array([[0.97, 0.03], [1.0, 0.0]])
    error = metrics.calibration_error(probs, [1, 0], binning="equal_width")
    assert error == pytest.approx(0.985 - 0.5)
    # With one more bin for 1.0 it would be the root of (0.97^2 + 0) / 2.
    assert error != pytest.approx(math.sqrt(0.97**2 / 2), abs=0.1)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("binning", ["equal_mass", "equal_width"])
@pytest.mark.parametrize("estimator", ["bin", "label"])
@pytest.mark.parametrize("norm", [1, 2, math.inf])
def test_equals_the_definition(case, binning, estimator, norm):
    probs, labels = CASES[case]
    for num_bins in (1, 2, 15, 100):
        error = metrics.calibration_error(
            probs, labels, num_bins, norm, binning, estimator
        )
        expected = naive.calibration_error(
            probs, labels, num_bins, norm, binning, estimator
        )
        assert isinstance(error, float)
        assert error == pytest.approx(expected, abs=1e-7), num_bins


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("binning", ["equal_mass", "equal_width"])
def test_debiased_equals_the_definition(case, binning):
    probs, labels = CASES[case]
    error = metrics.calibration_error(
        probs, labels, binning=binning, debias=True
    )
    expected = naive.calibration_error(
        probs, labels, 15, 2, binning, debias=True
    )
    assert error == pytest.approx(expected, abs=1e-7)


def test_debiasing_removes_the_bias_of_a_calibrated_network():
    plain, debiased = [], []
    for seed in range(40):
        probs, labels = probabilities(500, 5, seed=seed)
        plain.append(metrics.calibration_error(probs, labels) ** 2)
        confidence = metrics.reliability_curve(probs, labels)
        gap = (confidence.confidence - confidence.accuracy) ** 2
        bias = confidence.accuracy * (1 - confidence.accuracy)
        bias = bias / (confidence.count - 1)
        debiased.append(np.sum(confidence.count / 500 * (gap - bias)))
        error = metrics.calibration_error(probs, labels, debias=True)
        assert error == pytest.approx(math.sqrt(max(debiased[-1], 0)))
    assert abs(np.mean(debiased)) < 0.15 * np.mean(plain)


def test_logits_and_probabilities_agree():
    logits, labels = sample(500, 10)
    probs, _ = probabilities(500, 10)
    error = metrics.calibration_error(logits, labels, from_logits=True)
    assert error == pytest.approx(
        metrics.calibration_error(probs, labels), abs=1e-6
    )


def test_threads_change_nothing(monkeypatch):
    probs, labels = probabilities(3000, 10)
    alone = metrics.calibration_error(probs, labels)
    monkeypatch.setattr(blocks, "SMALLEST_THREADED_BYTES", 0)
    monkeypatch.setattr(blocks, "available_cores", lambda: 4)
    monkeypatch.setattr("caltrain_tf.metrics.binning.ROWS_PER_BLOCK", 100)
    assert metrics.calibration_error(probs, labels) == pytest.approx(
        alone, abs=1e-15
    )


@hypothesis.given(
    st.lists(
        st.tuples(st.integers(0, 20), st.integers(0, 1)),
        min_size=1,
        max_size=40,
    ),
    st.integers(1, 20),
    st.sampled_from([1, 2, math.inf]),
    st.sampled_from(["equal_mass", "equal_width"]),
    st.randoms(use_true_random=False),
)
@hypothesis.settings(deadline=None, max_examples=50)
def test_properties(rows, num_bins, norm, binning, random):
    first = np.array([row[0] / 20 for row in rows])
    probs = np.stack([first, 1 - first], axis=1)
    labels = np.array([row[1] for row in rows])
    error = metrics.calibration_error(probs, labels, num_bins, norm, binning)
    assert 0 <= error <= 1
    expected = naive.calibration_error(probs, labels, num_bins, norm, binning)
    assert error == pytest.approx(expected, abs=1e-9)
    order = list(range(len(rows)))
    random.shuffle(order)
    shuffled = metrics.calibration_error(
        probs[order], labels[order], num_bins, norm, binning
    )
    assert shuffled == pytest.approx(error, abs=1e-12)
    one_bin = metrics.calibration_error(probs, labels, 1, norm, binning)
    if norm != math.inf:
        assert one_bin <= error + 1e-12


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_bins": 0}, "num_bins=0"),
        ({"num_bins": 1.5}, "num_bins=1.5"),
        ({"norm": 3}, "norm=3"),
        ({"binning": "even"}, "binning='even'"),
        ({"estimator": "mean"}, "estimator='mean'"),
        ({"debias": True, "norm": 1}, "norm=1"),
        ({"debias": True, "estimator": "label"}, "estimator='label'"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=f"Received: .*{message}"):
        metrics.calibration_error([[0.9, 0.1]], [0], **options)
