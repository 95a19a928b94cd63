import numpy as np
import pytest

import caltrain_tf as ct
from caltrain_tf.experiments import measures


@pytest.fixture(scope="module")
def results():
    """Of a network whose logits are three times too large."""
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (4000, 5))
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = (probs.cumsum(axis=1) > rng.random((4000, 1))).argmax(axis=1)
    logits = (3 * logits).astype("float32")
    calibrators = measures.fit_calibrators(logits[:2000], labels[:2000])
    test = (logits[2000:], labels[2000:])
    return test, measures.final_results(test, calibrators)


def test_all_keys_of_results_json_are_there(results):
    keys = {
        "accuracy",
        "average_uncertainty",
        "brier",
        "ece",
        "ece_ts",
        "ece_ts_sb_ece",
        "ks_error",
        "marginal_ece",
        "mean_sweep_ce",
        "nll",
        "temperature_ts",
        "temperature_ts_sb_ece",
    }
    assert keys <= set(results[1])
    assert all(type(value) is float for value in results[1].values())


def test_scaling_finds_what_was_done(results):
    _, values = results
    assert abs(values["temperature_ts"] - 3) < 0.2
    assert abs(values["temperature_ts_sb_ece"] - 3) < 0.4
    assert values["ece_ts"] < 0.05 < values["ece"]


def test_values_are_those_of_the_metrics(results):
    (logits, labels), values = results
    assert values["ece"] == ct.metrics.calibration_error(
        logits, labels, from_logits=True
    )
    scaled = logits / values["temperature_ts"]
    np.testing.assert_allclose(
        values["nll_ts"],
        ct.metrics.negative_log_likelihood(scaled, labels, from_logits=True),
        rtol=1e-5,
    )


def test_the_mean_confidence_of_training_and_test_images(results):
    test, values = results
    probs = np.exp(test[0] - test[0].max(axis=1, keepdims=True))
    mean = (1 / probs.sum(axis=1)).mean()
    np.testing.assert_allclose(values["confidence"], mean, rtol=1e-5)
    trained = measures.final_results(test, {}, train=test)
    assert trained["train_confidence"] == values["confidence"]


def test_the_table_shows_them(results):
    table = measures.results_table(results[1])
    assert f"{100 * results[1]['ece_ts_sb_ece']:.2f}" in table
    header = table.splitlines()[1]
    assert header.split() == ["no", "scaling", "TS", "TS-SB-ECE"]
    assert f"{results[1]['temperature_ts']:.4f}" in table
    # The note says what each column is.
    assert "TS divides the logits" in table and "TS-SB-ECE by one" in table
