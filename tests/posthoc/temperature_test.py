import math
import warnings
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

import caltrain_tf as ct
from caltrain_tf.posthoc.temperature import soft_binned_error
from tests.posthoc import data as naive
from tests.posthoc.data import calibrated, mean_nll, softmax

ERRORS = {
    "sb_ece": naive.soft_binned_error,
    "hb_ece": ct.metrics.calibration_error,
}


def best_temperature(logits, labels):
    """By SciPy, in float64, from the naive formula."""
    found = minimize_scalar(
        lambda log_t: mean_nll(logits / math.exp(log_t), labels),
        bounds=(-12, 12),
        options={"xatol": 1e-10},
    )
    return math.exp(found.x)


@pytest.mark.parametrize("num_classes", [2, 10, 300])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_likelihood_optimum_is_that_of_a_naive_search(num_classes, dtype):
    logits, labels = calibrated(3000 if num_classes < 99 else 500, num_classes)
    logits = (1.7 * logits).astype(dtype)
    scaler = ct.posthoc.TemperatureScaling().fit(logits, labels)
    expected = best_temperature(logits.astype(np.float64), labels)
    assert scaler.temperature_ == pytest.approx(expected, rel=1e-6)
    assert expected == pytest.approx(1.7, rel=0.1)


def test_agrees_with_scikit_learn():
    pytest.importorskip("sklearn", "1.8", reason="It scales since 1.8.")
    from sklearn.calibration import _TemperatureScaling

    logits, labels = calibrated(500, 5)
    theirs = _TemperatureScaling().fit(3 * logits, labels)
    ours = ct.posthoc.TemperatureScaling().fit(3 * logits, labels)
    assert ours.temperature_ == pytest.approx(1 / theirs.beta_, abs=1e-6)


@pytest.mark.parametrize("objective", ["nll", "sb_ece", "hb_ece"])
@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_badly_scaled_logits_make_no_difference(objective, factor):
    logits, labels = calibrated(3000, 5)
    scaler = ct.posthoc.TemperatureScaling(objective)
    expected = scaler.fit(logits, labels).temperature_
    found = scaler.fit(factor * logits, labels).temperature_
    # A hard-binned error jumps, and may do so by a rounding more or less.
    tolerance = 1e-2 if objective == "hb_ece" else 1e-5
    assert found / factor == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize("offset", [-1e4, 1e4])
def test_offsets_of_rows_make_no_difference(offset):
    logits, labels = calibrated(500, 5)
    scaler = ct.posthoc.TemperatureScaling()
    expected = scaler.fit(logits, labels).temperature_
    found = scaler.fit(logits + offset, labels).temperature_
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    "num_rows, num_classes, factor", [(300, 2, 3.0), (1000, 10, 0.4)]
)
@pytest.mark.parametrize("name", ERRORS)
def test_no_temperature_of_a_fine_grid_has_a_smaller_error(
    name, num_rows, num_classes, factor
):
    logits, labels = calibrated(num_rows, num_classes, scale=1.5)
    logits = factor * logits
    scaler = ct.posthoc.TemperatureScaling(name, likelihood_weight=0)
    scaler.fit(logits, labels)

    def error(t):
        return ERRORS[name](softmax(logits / t), labels)

    grid = [error(t) for t in factor * np.geomspace(0.05, 20, 200)]
    # Jumps of the hard-binned error are narrower than any grid.
    slack = 2e-3 if name == "hb_ece" else 1e-6
    assert error(scaler.temperature_) <= min(grid) + slack


def naive_rule(logits, labels, weight=None):
    """The temperature that `"sb_ece"` should find, by a grid and SciPy."""
    if weight is None:
        weight = 2 * 15 / len(labels)

    def value(log_t):
        scaled = logits / math.exp(log_t)
        error = naive.soft_binned_error(softmax(scaled), labels)
        return error**2 + weight * mean_nll(scaled, labels)

    grid = np.linspace(-4, 4, 401)
    best = grid[np.argmin([value(x) for x in grid])]
    bounds = best - 0.02, best + 0.02
    found = minimize_scalar(value, bounds=bounds, options={"xatol": 1e-9})
    return math.exp(found.x)


@pytest.mark.parametrize("weight", [None, 0.5])
@pytest.mark.parametrize("num_rows, num_classes", [(100, 2), (300, 10)])
def test_soft_binned_error_gets_its_share_of_the_likelihood(
    num_rows, num_classes, weight
):
    logits, labels = calibrated(num_rows, num_classes, scale=1.5)
    scaler = ct.posthoc.TemperatureScaling(
        "sb_ece", likelihood_weight=weight
    ).fit(2 * logits, labels)
    expected = naive_rule(2 * logits, labels, weight)
    # Both are exact to about 1e-7, the end of their searches.
    assert scaler.temperature_ == pytest.approx(expected, rel=1e-6)


def test_few_examples_do_not_saturate_the_confidences():
    logits, labels = calibrated(60, 10, seed=7, scale=8.0)
    logits /= 2
    scaler = ct.posthoc.TemperatureScaling
    likely = scaler().fit(logits, labels).temperature_
    plain = scaler("sb_ece", likelihood_weight=0).fit(logits, labels)
    found = scaler("sb_ece").fit(logits, labels)
    assert plain.predict_proba(logits).max(axis=1).mean() > 0.99
    assert plain.temperature_ < likely / 10
    assert found.temperature_ == pytest.approx(likely, rel=0.2)
    assert found.temperature_ == pytest.approx(
        naive_rule(logits, labels), rel=1e-6
    )


@pytest.mark.parametrize("num_classes, factor", [(2, 0.5), (10, 2.0)])
def test_many_examples_get_the_optimum_of_the_soft_binned_error(
    num_classes, factor
):
    logits, labels = calibrated(5000, num_classes)
    # What no temperature can correct: every tenth label is wrong.
    labels[::10] = (labels[::10] + 1) % num_classes
    scaler = ct.posthoc.TemperatureScaling
    plain = scaler("sb_ece", likelihood_weight=0)
    expected = plain.fit(factor * logits, labels).temperature_
    found = scaler("sb_ece").fit(factor * logits, labels).temperature_
    likely = scaler().fit(factor * logits, labels).temperature_
    # TS is 10% to 18% away.
    assert found == pytest.approx(expected, rel=0.01)
    assert abs(found - expected) < 0.1 * abs(likely - expected)


def test_the_share_counts_effective_examples():
    logits, labels = calibrated(200, 3)
    scaler = ct.posthoc.TemperatureScaling("sb_ece")
    # Unequal weights, whose effective number is (sum w)^2 / sum w^2.
    weights = np.random.default_rng(0).integers(1, 4, 200)
    count = weights.sum() ** 2 / (weights**2).sum()
    expected = naive_rule(
        np.repeat(logits, weights, axis=0),
        np.repeat(labels, weights),
        weight=2 * 15 / count,
    )
    for scale in (1.0, 1e-7, 1e-200):
        found = scaler.fit(logits, labels, scale * weights).temperature_
        assert found == pytest.approx(expected, rel=1e-6)


def test_soft_binned_error_needs_a_global_search():
    # Two groups that want different temperatures: two valleys.
    generator = np.random.default_rng(0)
    sure = generator.random(2000) < 0.5
    margin = np.where(sure, 6.0, 1.0)
    right = generator.random(2000) < np.where(sure, 0.6, 0.95)
    logits = np.stack([margin, np.zeros(2000)], axis=1)
    labels = (~right).astype(int)
    scaler = ct.posthoc.TemperatureScaling("sb_ece", likelihood_weight=0)
    temperature = scaler.fit(logits, labels).temperature_

    def error(t):
        return naive.soft_binned_error(softmax(logits / t), labels)

    grid = np.array([error(t) for t in np.geomspace(0.02, 50, 200)])
    valleys = (grid[1:-1] < grid[:-2]) & (grid[1:-1] < grid[2:])
    assert valleys.sum() > 1
    assert error(temperature) <= grid.min() + 1e-6


@pytest.mark.parametrize("objective", ["nll", "sb_ece", "hb_ece"])
def test_without_errors_confidence_follows_the_rule_of_succession(objective):
    logits = np.array([[3.0, 0.0], [0.0, 3.0], [2.0, 0.0], [5.0, 1.0]])
    scaler = ct.posthoc.TemperatureScaling(objective)
    with pytest.warns(UserWarning, match="No example is misclassified"):
        scaler.fit(logits, [0, 1, 0, 0])
    confidence = scaler.predict_proba(logits).max(axis=1)
    assert confidence.mean() == pytest.approx(5 / 6, abs=1e-4)


def test_logits_without_information_become_uniform():
    logits = np.array([[2.0, 0.0], [2.0, 0.0], [0.0, 2.0], [0.0, 2.0]])
    with pytest.warns(UserWarning, match="say nothing"):
        scaler = ct.posthoc.TemperatureScaling().fit(logits, [1, 1, 0, 0])
    np.testing.assert_allclose(scaler.predict_proba(logits), 0.5, atol=1e-3)


@pytest.mark.parametrize("objective", ["nll", "sb_ece", "hb_ece"])
def test_equal_logits_are_left_alone(objective):
    with pytest.warns(UserWarning, match="say nothing"):
        scaler = ct.posthoc.TemperatureScaling(objective).fit(
            np.full((3, 4), 7.0), [0, 1, 2]
        )
    assert scaler.temperature_ == 1.0


@pytest.mark.parametrize("objective", ["sb_ece", "hb_ece"])
def test_always_wrong_predictions_become_uniform(objective):
    logits = np.tile([[4.0, 0.0]], (50, 1))
    scaler = ct.posthoc.TemperatureScaling(objective)
    with pytest.warns(UserWarning, match="say nothing"):
        scaler.fit(logits, np.ones(50, int))
    np.testing.assert_allclose(scaler.predict_proba(logits), 0.5, atol=1e-2)


@pytest.mark.parametrize("objective", ["nll", "sb_ece"])
def test_reads_batches_once_per_step(objective):
    logits, labels = calibrated(4000, 5)
    passes = []

    class Batches:
        def __iter__(self):
            passes.append(1)
            # In another order each time.
            order = np.random.default_rng(len(passes)).permutation(4000)
            for rows in order.reshape(8, 500):
                yield logits[rows], labels[rows]

    scaler = ct.posthoc.TemperatureScaling(objective).fit(Batches())
    expected = ct.posthoc.TemperatureScaling(objective).fit(logits, labels)
    # The search for an SB-ECE ends at 1e-7.
    tolerance = 1e-9 if objective == "nll" else 1e-6
    assert scaler.temperature_ == pytest.approx(
        expected.temperature_, tolerance
    )
    if objective == "nll":
        assert len(passes) < 12


@pytest.mark.parametrize("num_bins", [1, 2, 15, 50])
def test_equals_the_formula_and_the_loss(num_bins):
    logits, labels = calibrated(300, 4)
    probs = softmax(logits)
    confidence, correct = probs.max(axis=1), probs.argmax(axis=1) == labels
    found = soft_binned_error(confidence, correct, np.ones(300), num_bins)
    expected = naive.soft_binned_error(probs, labels, num_bins)
    loss = ct.losses.sb_ece(labels, probs, num_bins=num_bins, binning="bin")
    assert found == pytest.approx(expected, rel=1e-9)
    assert found == pytest.approx(float(loss), rel=1e-2, abs=1e-5)


def test_weights_of_hard_bins_are_repetitions_of_rows():
    logits, labels = calibrated(200, 3)
    weights = np.random.default_rng(0).integers(0, 3, 200)
    scaler = ct.posthoc.TemperatureScaling("hb_ece")
    expected = scaler.fit(
        np.repeat(logits, weights, axis=0), np.repeat(labels, weights)
    ).temperature_
    found = scaler.fit(logits, labels, 1e-7 * weights).temperature_
    assert found == pytest.approx(expected, rel=1e-9)


def test_saturated_confidences_and_empty_bins(monkeypatch):
    monkeypatch.setattr("caltrain_tf.posthoc.temperature.SOFTNESS", 1e-4)
    error = partial(soft_binned_error, weight=np.ones(5), num_bins=15)
    assert error(np.ones(5), np.ones(5, bool)) == pytest.approx(0.0)
    assert error(np.ones(5), np.zeros(5, bool)) == pytest.approx(1.0)


def nll_at(logits, labels, inverse, weights):
    scaled = inverse * np.asarray(logits, np.float64)
    scaled -= scaled.max(axis=1, keepdims=True)
    of_label = scaled[np.arange(len(labels)), labels]
    losses = np.log(np.exp(scaled).sum(axis=1)) - of_label
    return np.average(losses, weights=weights)


def fit_quietly(logits, labels, weights=None):
    """The scaler, and whether the data determine a temperature."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scaler = ct.posthoc.TemperatureScaling().fit(logits, labels, weights)
    messages = [str(each.message) for each in caught]
    assert not any("converge" in message for message in messages)
    return scaler, not any("determine no" in message for message in messages)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    num_rows=st.integers(1, 40),
    num_classes=st.integers(2, 60),
    log_scale=st.floats(-12, 12),
    dtype=st.sampled_from([np.float16, np.float32, np.float64]),
    weighted=st.booleans(),
)
def test_never_worse_than_no_scaling_nor_than_its_neighbours(
    seed, num_rows, num_classes, log_scale, dtype, weighted
):
    rng = np.random.default_rng(seed)
    if dtype == np.float16:
        log_scale = np.clip(log_scale, -3, 3)
    logits = 10.0**log_scale * rng.standard_normal((num_rows, num_classes))
    logits = logits.astype(dtype)
    labels = rng.integers(num_classes, size=num_rows)
    weights = rng.random(num_rows) if weighted else None
    scaler, determined = fit_quietly(logits, labels, weights)
    if not determined:
        return
    inverse = 1 / scaler.temperature_
    found = nll_at(logits, labels, inverse, weights)
    # The likelihood is convex: no neighbour is better. Fits to float32 logits
    # sum in float32, to 1e-6 of the loss.
    slack = 1e-5 * (1 + found)
    assert found <= nll_at(logits, labels, 1.0, weights) + slack
    for factor in (0.99, 1.01):
        assert (
            found <= nll_at(logits, labels, factor * inverse, weights) + slack
        )


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(
    "num_rows, scale, dtype", [(3, 1.0, "float64"), (40, 1e10, "float32")]
)
def test_few_rows_of_any_scale_get_their_optimum(num_rows, scale, dtype, seed):
    rng = np.random.default_rng(seed)
    logits = (3 * rng.normal(size=(num_rows, 55))).astype(np.float16)
    labels = rng.integers(55, size=num_rows)
    # Every third label is right, so that the logits say something.
    labels[::3] = logits[::3].argmax(axis=1)
    logits = logits.astype(np.float64)
    scaled = (scale * logits).astype(dtype)
    scaler, determined = fit_quietly(scaled, labels)
    assert determined
    found = nll_at(scaled, labels, 1 / scaler.temperature_, None)
    expected = mean_nll(logits / best_temperature(logits, labels), labels)
    # Sums in float32: seen 2e-7.
    assert found == pytest.approx(expected, rel=1e-6)
    assert found < mean_nll(logits, labels)


def test_one_row_of_large_logits_does_not_hide_the_others():
    logits, labels = calibrated(500, 5)
    logits[0] *= 1e10
    labels[0] = logits[0].argmax()
    scaler, _ = fit_quietly(logits, labels)
    expected = best_temperature(logits[1:], labels[1:])
    assert scaler.temperature_ == pytest.approx(expected, rel=1e-3)
