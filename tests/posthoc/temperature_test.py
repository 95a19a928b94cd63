import math
from functools import partial

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import caltrain_tf as ct
from caltrain_tf.posthoc import data
from caltrain_tf.posthoc.temperature import Panel
from caltrain_tf.posthoc.temperature import SoftBinnedError
from caltrain_tf.posthoc.temperature import evaluate_nodes
from caltrain_tf.posthoc.temperature import likelihood
from tests.posthoc.data import calibrated
from tests.posthoc.data import mean_nll
from tests.posthoc.data import soft_binned_error
from tests.posthoc.data import softmax

ERRORS = {
    "sb_ece": partial(soft_binned_error, binning="bin"),
    "label": partial(soft_binned_error, binning="label"),
    "hb_ece": ct.metrics.calibration_error,
}
SCALERS = {
    "sb_ece": ct.posthoc.TemperatureScaling("sb_ece"),
    "label": ct.posthoc.TemperatureScaling("sb_ece", binning="label"),
    "hb_ece": ct.posthoc.TemperatureScaling("hb_ece"),
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


@pytest.mark.parametrize("num_rows, num_classes", [(300, 2), (1000, 10)])
@pytest.mark.parametrize("factor", [0.4, 3.0])
@pytest.mark.parametrize("name", SCALERS)
def test_no_temperature_of_a_fine_grid_has_a_smaller_error(
    name, num_rows, num_classes, factor
):
    logits, labels = calibrated(num_rows, num_classes, scale=1.5)
    logits = factor * logits
    temperature = SCALERS[name].fit(logits, labels).temperature_

    def error(t):
        return ERRORS[name](softmax(logits / t), labels)

    grid = [error(t) for t in factor * np.geomspace(0.05, 20, 200)]
    # Jumps of the hard-binned error are narrower than any grid.
    slack = 2e-3 if name == "hb_ece" else 1e-6
    assert error(temperature) <= min(grid) + slack


def test_soft_binned_error_needs_a_global_search():
    # Two groups that want different temperatures: two valleys.
    generator = np.random.default_rng(0)
    sure = generator.random(2000) < 0.5
    margin = np.where(sure, 6.0, 1.0)
    right = generator.random(2000) < np.where(sure, 0.6, 0.95)
    logits = np.stack([margin, np.zeros(2000)], axis=1)
    labels = (~right).astype(int)
    scaler = ct.posthoc.TemperatureScaling("sb_ece", soft_temperature=0.001)
    temperature = scaler.fit(logits, labels).temperature_

    def error(t):
        return soft_binned_error(softmax(logits / t), labels, "bin", 0.001)

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
    with pytest.warns(UserWarning, match="are equal"):
        scaler = ct.posthoc.TemperatureScaling(objective).fit(
            np.full((3, 4), 7.0), [0, 1, 2]
        )
    assert scaler.temperature_ == 1.0


@pytest.mark.parametrize("objective", ["sb_ece", "hb_ece"])
def test_always_wrong_predictions_become_uniform(objective):
    logits = np.tile([[4.0, 0.0]], (50, 1))
    scaler = ct.posthoc.TemperatureScaling(objective)
    with pytest.warns(UserWarning, match="last temperature"):
        scaler.fit(logits, np.ones(50, int))
    np.testing.assert_allclose(scaler.predict_proba(logits), 0.5, atol=1e-2)


def test_half_precision_and_rows_sorted_by_class():
    logits, labels = calibrated(5000, 3)
    order = np.argsort(labels)
    scaler = ct.posthoc.TemperatureScaling()
    expected = scaler.fit(logits, labels).temperature_
    found = scaler.fit(logits[order], labels[order]).temperature_
    assert found == pytest.approx(expected, rel=1e-9)
    found = scaler.fit(logits.astype(np.float16), labels).temperature_
    assert found == pytest.approx(expected, rel=1e-3)


def test_predicted_classes_stay_the_same():
    logits, labels = calibrated(200, 6)
    scaler = ct.posthoc.TemperatureScaling("sb_ece").fit(4 * logits, labels)
    np.testing.assert_array_equal(
        scaler.transform(logits).argmax(axis=1), logits.argmax(axis=1)
    )


def test_streams_a_dataset_a_few_times_only(monkeypatch):
    monkeypatch.setattr(data, "SMALL_BYTES", 0)
    logits, labels = calibrated(4000, 5)
    passes = []

    class Batches:
        def __iter__(self):
            passes.append(1)
            for i in range(0, 4000, 500):
                yield logits[i : i + 500], labels[i : i + 500]

    scaler = ct.posthoc.TemperatureScaling().fit(Batches())
    expected = ct.posthoc.TemperatureScaling().fit(logits, labels)
    assert scaler.temperature_ == pytest.approx(expected.temperature_, 1e-9)
    assert len(passes) < 10


@pytest.mark.parametrize("binning", ["bin", "label"])
@pytest.mark.parametrize(
    "num_bins, temperature", [(1, 1.0), (2, 1e-3), (15, 1e-5), (15, 0.01)]
)
def test_equals_the_formula_and_the_loss(binning, num_bins, temperature):
    logits, labels = calibrated(300, 4)
    probs = softmax(logits)
    found = SoftBinnedError(num_bins, temperature, binning)(
        probs.max(axis=1), probs.argmax(axis=1) == labels
    )
    naive = soft_binned_error(probs, labels, binning, temperature, num_bins)
    loss = ct.losses.sb_ece(
        labels,
        probs,
        num_bins=num_bins,
        temperature=temperature,
        binning=binning,
    )
    assert found == pytest.approx(naive, rel=1e-9)
    assert found == pytest.approx(float(loss), rel=1e-2, abs=1e-5)


def test_weights_are_repetitions_of_rows():
    rng = np.random.default_rng(0)
    confidence, correct = rng.random(90), rng.random(90) < 0.5
    weights = rng.integers(0, 4, 90).astype(float)
    repeat = weights.astype(int)
    for error in (
        SoftBinnedError(15, 0.01, "bin"),
        SoftBinnedError(15, 0.01, "label"),
    ):
        expected = error(
            np.repeat(confidence, repeat), np.repeat(correct, repeat)
        )
        for scale in (1.0, 1e-7):
            found = error(confidence, correct, scale * weights)
            assert found == pytest.approx(expected, rel=1e-6)


def test_weights_of_hard_bins_are_repetitions_of_rows():
    logits, labels = calibrated(200, 3)
    weights = np.random.default_rng(0).integers(0, 3, 200)
    scaler = ct.posthoc.TemperatureScaling("hb_ece")
    expected = scaler.fit(
        np.repeat(logits, weights, axis=0), np.repeat(labels, weights)
    ).temperature_
    found = scaler.fit(logits, labels, 1e-7 * weights).temperature_
    assert found == pytest.approx(expected, rel=1e-9)


def test_saturated_confidences_and_empty_bins():
    error = SoftBinnedError(15, 1e-4, "bin")
    assert error(np.ones(5), np.ones(5, bool)) == pytest.approx(0.0)
    assert error(np.ones(5), np.zeros(5, bool)) == pytest.approx(1.0)


def test_interpolates_confidences():
    logits, labels = calibrated(200, 20, scale=4.0)
    rows = data.read(logits, labels)
    for width, tolerance in ((math.log(1.25), 1e-5), (0.02, 1e-10)):
        ends = [-0.3, -0.3 + width]
        panel = Panel(evaluate_nodes(rows, np.exp(ends)), 0, *ends)
        for position in np.linspace(*ends, 7):
            expected = softmax(math.exp(position) * logits)
            np.testing.assert_allclose(
                panel.confidence(position),
                expected.max(axis=1),
                atol=tolerance,
            )
            gap = expected.max(axis=1) - (expected.argmax(axis=1) == labels)
            np.testing.assert_allclose(
                panel.gap(position), gap.mean(), atol=tolerance
            )


def test_likelihood_and_its_derivatives():
    logits, labels = calibrated(100, 5)
    rows = data.read(logits, labels)
    step = 1e-4

    def value(inverse):
        return 100 * mean_nll(inverse * logits, labels)

    found = likelihood(rows, 0.7)
    slope = (value(0.7 + step) - value(0.7 - step)) / (2 * step)
    bend = value(0.7 + step) - 2 * value(0.7) + value(0.7 - step)
    np.testing.assert_allclose(
        found, (value(0.7), slope, bend / step**2), rtol=1e-5
    )
