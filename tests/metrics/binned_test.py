import itertools
import json
import math
import pathlib
import re

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from caltrain_tf import inputs, metrics
from caltrain_tf.metrics import binned
from tests.metrics import naive
from tests.metrics.cases import CASES, probabilities, sample

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


@pytest.mark.parametrize("num_examples", [1, 2, 7, 10, 100])
@pytest.mark.parametrize("num_bins", [1, 2, 3, 15, 200])
def test_equal_mass_edges(num_examples, num_bins):
    values = np.random.default_rng(0).random(num_examples)
    edges = binned.inner_edges(values, num_bins, "equal_mass")
    assert edges.tolist() == naive.equal_mass_edges(values, num_bins)


def test_bins_of_distinct_values_differ_by_at_most_one():
    values = np.random.default_rng(0).random(1000)
    edges = binned.inner_edges(values, 15, "equal_mass")
    counts = np.bincount(binned.bin_indices(values, edges))
    assert set(counts) <= {66, 67}


def test_six_tenths_belongs_to_the_bin_above():
    edges = binned.inner_edges(np.array([0.5]), 5, "equal_width")
    assert binned.bin_indices(np.array([0.6]), edges).tolist() == [3]


@pytest.mark.parametrize("num_bins", [15, 100])
def test_an_edge_belongs_to_the_bin_above(num_bins):
    edges = np.arange(1, num_bins) / num_bins
    indices = binned.bin_indices(edges, edges)
    assert indices.tolist() == list(range(1, num_bins))
    assert binned.bin_indices(np.array([0.0, 1.0]), edges).tolist() == [
        0,
        num_bins - 1,
    ]


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


def test_mean_sweep_bad_norm():
    with pytest.raises(ValueError, match="Received: norm=0"):
        metrics.mean_sweep_calibration_error([[0.9, 0.1]], [0], norm=0)


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


def test_reliability_curve_unpacks():
    confidence, accuracy, count = metrics.reliability_curve(
        *CASES["calibrated_10"], num_bins=4
    )
    assert confidence.shape == accuracy.shape == count.shape == (4,)
    assert count.sum() == 800
    assert (np.diff(confidence) > 0).all()
