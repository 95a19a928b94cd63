"""Metrics by group."""

import functools

import numpy as np
import pytest

from caltrain_tf import metrics
from tests.metrics.cases import NUMERIC, probabilities, sample

PROBS, LABELS = probabilities(200, 4)
NUMBERS = np.random.default_rng(0).integers(0, 3, 200)


@pytest.mark.parametrize("metric", NUMERIC, ids=lambda m: m.__name__)
def test_equals_the_metric_of_each_group(metric):
    table = metrics.groupwise(metric, PROBS, LABELS, NUMBERS)
    assert list(table.values) == [0, 1, 2]
    for group, value in table.values.items():
        rows = group == NUMBERS
        assert table.counts[group] == rows.sum()
        expected = metric(PROBS[rows], LABELS[rows])
        assert value == pytest.approx(expected, rel=1e-12, nan_ok=True)
    assert table.overall == pytest.approx(
        metric(PROBS, LABELS), rel=1e-12, nan_ok=True
    )
    if not np.isnan(list(table.values.values())).any():
        largest = max(table.values.values())
        smallest = min(table.values.values())
        assert table.gap == largest - smallest
        rises = metric in (metrics.accuracy, metrics.coverage_at_risk)
        assert table.worst == (smallest if rises else largest)
        assert table.values[table.worst_group] == table.worst


def test_options_and_weights_are_passed_along():
    logits, labels = sample(200, 4)
    weight = np.random.default_rng(1).random(200)
    options = {"num_bins": 7, "norm": 1, "from_logits": True}
    for metric in (
        metrics.calibration_error,
        metrics.marginal_calibration_error,
    ):
        table = metrics.groupwise(
            metric, logits, labels, NUMBERS, sample_weight=weight, **options
        )
        for group, value in table.values.items():
            rows = group == NUMBERS
            expected = metric(
                logits[rows],
                labels[rows],
                sample_weight=weight[rows],
                **options,
            )
            assert value == pytest.approx(expected, rel=1e-12)


def test_groups_without_an_example_that_counts_are_left_out():
    labels = np.where(NUMBERS == 1, -1, LABELS)
    weight = np.where(NUMBERS == 2, 0.0, 1.0)
    table = metrics.groupwise(
        metrics.accuracy,
        PROBS,
        labels,
        NUMBERS,
        ignore_class=-1,
        sample_weight=weight,
    )
    rows = NUMBERS == 0
    assert table.values == {0: metrics.accuracy(PROBS[rows], LABELS[rows])}
    assert table.counts == {0: rows.sum()}
    assert table.overall == table.worst and table.gap == 0


@pytest.mark.parametrize(
    "names",
    [
        ("young", "old", "middle"),
        (("f", 1), ("m", 1), ("f", 2)),
        (1, "a", None),
        (True, False, True),
        (0.5, 1.5, -1.0),
    ],
)
def test_any_hashable_is_a_group(names):
    groups = [names[number] for number in NUMBERS]
    expected = {
        name: np.mean(
            (PROBS.argmax(axis=1) == LABELS)[[g == name for g in groups]]
        )
        for name in names
    }
    array = np.fromiter(groups, object, len(groups))
    for given in (groups, tuple(groups), array):
        table = metrics.groupwise(metrics.accuracy, PROBS, LABELS, given)
        assert table.values == pytest.approx(expected)
    if names != (1, "a", None):
        assert list(table.values) == sorted(set(names))


def test_groups_of_tokens_and_of_sequences():
    probs, labels = PROBS.reshape(20, 10, 4), LABELS.reshape(20, 10)
    tokens = metrics.groupwise(
        metrics.brier_score, probs, labels, NUMBERS.reshape(20, 10)
    )
    assert tokens == metrics.groupwise(
        metrics.brier_score, PROBS, LABELS, NUMBERS
    )
    sequences = metrics.groupwise(
        metrics.brier_score, probs, labels, NUMBERS[:20]
    )
    assert sequences == metrics.groupwise(
        metrics.brier_score, PROBS, LABELS, np.repeat(NUMBERS[:20], 10)
    )


def test_a_function_of_ones_own():
    def confidence(probs, labels, sample_weight=None):
        return np.average(probs.max(axis=1), weights=sample_weight)

    table = metrics.groupwise(confidence, PROBS, LABELS, NUMBERS)
    assert table.worst == max(table.values.values())
    assert table.metric == "confidence"
    weight = np.random.default_rng(1).random(200)
    weighted = metrics.groupwise(
        confidence, PROBS, LABELS, NUMBERS, sample_weight=weight
    )
    rows = NUMBERS == 1
    assert weighted.values[1] == pytest.approx(
        confidence(PROBS[rows], LABELS[rows], weight[rows])
    )
    part = functools.partial(confidence)
    assert metrics.groupwise(part, PROBS, LABELS, NUMBERS).gap == table.gap


def test_bad_metrics_and_options():
    call = functools.partial(
        metrics.groupwise, probs=PROBS, labels=LABELS, groups=NUMBERS
    )
    with pytest.raises(TypeError, match="calibration_error.* 'num_bin'"):
        call(metrics.calibration_error, num_bin=3)
    with pytest.raises(TypeError, match="brier_score.* 'norm'"):
        call(metrics.brier_score, norm=3)
    with pytest.raises(ValueError, match="must return a number.*Curve"):
        call(metrics.reliability_curve)


def test_bad_groups():
    call = functools.partial(metrics.groupwise, metrics.accuracy, PROBS, LABELS)
    with pytest.raises(ValueError, match=r"groups.shape=\(199,\)"):
        call(NUMBERS[:-1])
    with pytest.raises(ValueError, match="must not hold NaN"):
        call(np.where(NUMBERS == 0, np.nan, NUMBERS))
    with pytest.raises(ValueError, match="hashable objects: .*'list'"):
        call(np.fromiter(([n] for n in NUMBERS), object, 200))
    with pytest.raises(ValueError, match="`groups`.*Received: groups='a'"):
        call("a")
