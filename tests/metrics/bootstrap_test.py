import numpy as np
import pytest

from caltrain_tf import metrics
from caltrain_tf.metrics import subsets
from tests.metrics.cases import NUMERIC, probabilities


@pytest.mark.parametrize("metric", NUMERIC, ids=lambda metric: metric.__name__)
def test_value_and_interval(metric):
    probs, labels = probabilities(300, 4)
    value, (low, high) = metrics.bootstrap(metric, probs, labels, 30)
    assert value == pytest.approx(metric(probs, labels), abs=1e-12)
    assert 0 <= low <= value <= high or np.isnan(value)
    if metric not in (metrics.negative_log_likelihood, metrics.brier_score):
        assert high <= 1 or metric is metrics.average_uncertainty
    again = metrics.bootstrap(metric, probs, labels, 30)
    assert again == (value, (low, high))
    other = metrics.bootstrap(metric, probs, labels, 30, seed=1)
    assert other.value == value and other.interval != (low, high)


@pytest.mark.parametrize("metric", NUMERIC, ids=lambda metric: metric.__name__)
def test_is_resampling_the_rows(metric):
    probs, labels = probabilities(60, 3)
    interval = metrics.bootstrap(
        metric, probs, labels, 7, level=0.8, seed=3
    ).interval
    generator = np.random.default_rng(3)
    values = []
    for _ in range(7):
        rows = generator.integers(60, size=60)
        values.append(metric(probs[rows], labels[rows]))
    value = metric(probs, labels)
    low, high = np.maximum(2 * value - np.quantile(values, [0.9, 0.1]), 0)
    if metric in subsets.OF_TOP_LABELS:
        low, high = min(low, 1.0), min(high, 1.0)
    expected = np.fmin(low, value), np.fmax(high, value)
    np.testing.assert_allclose(interval, expected, atol=1e-9)


@pytest.mark.parametrize("debias", [False, True])
def test_the_value_lies_in_its_interval(debias):
    for seed in range(10):
        probs, labels = probabilities(200, 4, seed=seed)
        value, (low, high) = metrics.bootstrap(
            metrics.calibration_error,
            probs,
            labels,
            40,
            debias=debias,
        )
        assert low <= value <= high


def test_interval_of_a_mean_is_the_textbook_one():
    probs, labels = probabilities(2000, 4)
    value, (low, high) = metrics.bootstrap(metrics.accuracy, probs, labels)
    half = 1.96 * np.sqrt(value * (1 - value) / 2000)
    assert low == pytest.approx(value - half, abs=0.15 * half)
    assert high == pytest.approx(value + half, abs=0.15 * half)


def test_options_and_any_function():
    probs, labels = probabilities(100, 3)
    plain = metrics.bootstrap(
        metrics.calibration_error, probs, labels, 5, num_bins=3, norm=1
    )
    wrapped = metrics.bootstrap(
        lambda p, y, **options: metrics.calibration_error(p, y, **options),
        probs,
        labels,
        5,
        num_bins=3,
        norm=1,
    )
    assert plain.value == pytest.approx(wrapped.value)
    np.testing.assert_allclose(plain.interval, wrapped.interval)


@pytest.mark.parametrize(
    "options",
    [{"num_samples": 0}, {"level": 2}, {"norm": 3}],
)
def test_bad_options(options):
    ((name, value),) = options.items()
    with pytest.raises(ValueError, match=f"Received: {name}={value!r}"):
        metrics.bootstrap(
            metrics.calibration_error, [[0.9, 0.1]], [0], **options
        )
