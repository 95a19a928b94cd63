import numpy as np
import pytest

import caltrain_tf as ct
from caltrain_tf.posthoc.ensemble import mixture_weights
from tests.posthoc.data import calibrated, mean_nll, softmax


def test_weights_are_the_best_of_a_fine_grid():
    generator = np.random.default_rng(0)
    logs = np.log(generator.beta(2, 1, size=(3, 200)))
    weights = mixture_weights(logs, np.ones(logs.shape[1]))
    assert weights.min() >= 0 and weights.sum() == pytest.approx(1)

    def nll(w):
        return -np.mean(np.log(np.asarray(w) @ np.exp(logs)))

    grid = [
        nll([a, b, 1 - a - b])
        for a in np.linspace(0, 1, 101)
        for b in np.linspace(0, 1 - a, 101)
    ]
    assert nll(weights) <= min(grid) + 1e-9


def test_saturated_parts_do_not_underflow():
    logs = np.array([[-2000.0, -1.0], [-1000.0, -2.0], [-0.7, -0.7]])
    assert np.all(np.isfinite(mixture_weights(logs, np.ones(logs.shape[1]))))


def test_transform_is_the_formula_and_never_worse_than_its_temperature():
    logits, labels = calibrated(2000, 4)
    # One label in ten is drawn at random: the uniform part is needed.
    generator = np.random.default_rng(1)
    noisy = generator.random(2000) < 0.1
    labels = np.where(noisy, generator.integers(4, size=2000), labels)
    logits = 3 * logits
    scaler = ct.posthoc.EnsembleTemperatureScaling().fit(logits, labels)
    plain = ct.posthoc.TemperatureScaling().fit(logits, labels)
    assert scaler.temperature_ == plain.temperature_
    w = scaler.weights_
    expected = w[0] * softmax(logits / scaler.temperature_)
    expected += w[1] * softmax(logits) + w[2] / 4
    np.testing.assert_allclose(
        np.exp(scaler.transform(logits)), expected, rtol=1e-9
    )
    np.testing.assert_allclose(scaler.predict_proba(logits), expected, 1e-9)
    assert mean_nll(scaler.transform(logits), labels) <= mean_nll(
        plain.transform(logits), labels
    )
    np.testing.assert_array_equal(
        scaler.transform(logits).argmax(axis=1), logits.argmax(axis=1)
    )


@pytest.mark.filterwarnings("ignore:The logits say nothing")
def test_predicted_classes_stay_where_predictions_are_worse_than_chance():
    logits, labels = calibrated(500, 2)
    scaler = ct.posthoc.EnsembleTemperatureScaling().fit(-logits, labels)
    assert scaler.weights_[2] > 0.99
    transformed = scaler.transform(logits)
    np.testing.assert_array_equal(
        transformed.argmax(axis=1), logits.argmax(axis=1)
    )
    np.testing.assert_array_equal(
        scaler.as_layer()(logits.astype("float32")).numpy().argmax(axis=1),
        logits.argmax(axis=1),
    )
