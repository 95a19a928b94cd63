import itertools
import json
import math
import pathlib
import re

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from sklearn.calibration import calibration_curve

from caltrain_tf import inputs, metrics
from caltrain_tf.metrics import binned
from tests.metrics import naive
from tests.metrics.cases import CASES, probabilities

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


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("binning", ["equal_mass", "equal_width"])
def test_equals_the_definition(case, binning):
    probs, labels = CASES[case]
    for num_bins, norm, estimator in itertools.product(
        (1, 15, 100), (1, 2, math.inf), ("bin", "label")
    ):
        error = metrics.calibration_error(
            probs, labels, num_bins, norm, binning, estimator
        )
        expected = naive.calibration_error(
            probs, labels, num_bins, norm, binning, estimator
        )
        assert isinstance(error, float)
        assert error == pytest.approx(expected, abs=1e-7), num_bins
    options = {"binning": binning, "debias": True}
    error = metrics.calibration_error(probs, labels, **options)
    expected = naive.calibration_error(probs, labels, 15, 2, **options)
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


def test_threads_change_nothing(monkeypatch):
    probs, labels = probabilities(3000, 10)
    alone = metrics.calibration_error(probs, labels)
    monkeypatch.setattr(inputs, "BLOCK_BYTES", 4000)
    monkeypatch.setattr(inputs, "available_cores", lambda: 4)
    monkeypatch.setattr(binned, "EXAMPLES_PER_BLOCK", 100)
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


def test_six_tenths_belongs_to_the_bin_above():
    edges = binned.inner_edges(np.array([0.5]), 5, "equal_width")
    assert binned.bin_indices(np.array([0.6]), edges).tolist() == [3]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("norm", [1, 2, math.inf])
def test_mean_sweep_equals_the_definition(case, norm):
    probs, labels = CASES[case]
    error = metrics.mean_sweep_calibration_error(probs, labels, norm)
    expected = naive.mean_sweep(probs, labels, norm)
    assert error == pytest.approx(expected, abs=1e-7)


def test_mean_sweep_separable_examples_take_as_many_bins_as_there_are():
    confidence = np.linspace(0.6, 0.9, 2000)
    probs = np.stack([confidence, 1 - confidence], axis=1)
    labels = (confidence < 0.7).astype(int)
    error = metrics.mean_sweep_calibration_error(probs, labels)
    gaps = np.where(labels == 0, 1 - confidence, confidence)
    assert error == pytest.approx(math.sqrt(np.mean(gaps**2)))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("binning", ["equal_mass", "equal_width"])
def test_reliability_curve_equals_the_definition(case, binning):
    probs, labels = CASES[case]
    curve = metrics.reliability_curve(probs, labels, 10, binning)
    confidence, correct = naive.top(probs, labels)
    for b, rows in enumerate(naive.members(confidence, 10, binning)):
        assert curve.count[b] == len(rows)
        if rows:
            assert curve.accuracy[b] == pytest.approx(correct[rows].mean())
            assert curve.confidence[b] == pytest.approx(confidence[rows].mean())
        else:
            assert np.isnan(curve.accuracy[b]) and np.isnan(curve.confidence[b])


@pytest.mark.parametrize("from_logits", [False, True])
@pytest.mark.parametrize(
    "binning, strategy",
    [("equal_width", "uniform"), ("equal_mass", "quantile")],
)
def test_curve_of_class_1_is_that_of_scikit_learn(
    binning, strategy, from_logits
):
    generator = np.random.default_rng(0)
    logits = 2 * generator.normal(size=1000)
    probs = 1 / (1 + np.exp(-logits))
    labels = (generator.random(1000) < probs**2).astype(int)
    expected = calibration_curve(labels, probs, n_bins=10, strategy=strategy)
    pairs = np.stack([1 - probs, probs], axis=1)
    for given in (logits, logits[:, None]) if from_logits else (probs, pairs):
        curve = metrics.reliability_curve(
            given, labels, 10, binning, positive=True, from_logits=from_logits
        )
        np.testing.assert_allclose(curve.accuracy, expected[0], atol=1e-12)
        np.testing.assert_allclose(curve.confidence, expected[1], atol=1e-12)
        assert curve.count.sum() == 1000


def test_curve_of_class_1_needs_two_classes():
    with pytest.raises(
        ValueError, match="binary problem. Received: 10 classes"
    ):
        metrics.reliability_curve(*CASES["calibrated_10"], positive=True)


def test_a_rank_that_is_a_sum_of_weights_is_not_moved_by_rounding():
    probs = np.float32([[0.484375, 0.515625], [0.4375, 0.5625]])
    # 4/3 + 1 - 1 is below 4/3; either example has a bin of its own.
    error = metrics.calibration_error(
        probs, [0, 1], num_bins=3, norm=1, sample_weight=[4, 3]
    )
    assert error == pytest.approx((4 * 0.515625 + 3 * 0.4375) / 7)
