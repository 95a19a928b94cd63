"""Calibration layers behind a network that masks padding."""

import keras
import numpy as np
import pytest

import caltrain_tf as ct

NUM_CLASSES = 3
CALIBRATORS = {
    "temperature": ct.posthoc.TemperatureScaling(),
    "ensemble": ct.posthoc.EnsembleTemperatureScaling(),
    "matrix": ct.posthoc.MatrixScaling(penalty=0.1),
    "beta": ct.posthoc.BetaCalibration(),
}


@pytest.fixture(scope="module")
def sequences():
    """Tokens that end in zeros, labels, and which tokens are real."""
    rng = np.random.default_rng(0)
    real = np.arange(9) < rng.integers(2, 10, size=40)[:, None]
    tokens = np.where(real, rng.integers(1, 8, size=real.shape), 0)
    noise = rng.integers(0, NUM_CLASSES, size=real.shape)
    labels = np.where(rng.random(real.shape) < 0.6, tokens % 3, noise)
    return tokens.astype("int32"), labels.astype("int32"), real


@pytest.fixture
def tagger():
    """A network whose padding is masked, and confidently wrong."""
    rng = np.random.default_rng(1)
    model = keras.Sequential(
        [
            keras.Input((9,), dtype="int32"),
            keras.layers.Embedding(8, 4, mask_zero=True),
            keras.layers.Dense(NUM_CLASSES),
        ]
    )
    embedding = 2 * rng.normal(size=(8, 4))
    kernel = np.linalg.lstsq(
        embedding[1:], 3 * np.eye(3)[np.arange(1, 8) % 3], rcond=None
    )[0]
    model.set_weights([embedding, kernel, np.zeros(3)])
    return model


@pytest.mark.parametrize("name", CALIBRATORS)
def test_padding_stays_padding(name, sequences, tagger, tmp_path):
    tokens, labels, real = sequences
    logits = tagger.predict(tokens, verbose=0)
    calibrator = CALIBRATORS[name].fit(logits[real], labels[real])
    model = calibrator.append_to(tagger)
    model.compile(
        "sgd",
        ct.losses.NLL(from_logits=True),
        metrics=[
            ct.metrics.ExpectedCalibrationError(
                binning="equal_width", from_logits=True
            )
        ],
    )
    model.save(tmp_path / "model.keras")
    expected = ct.metrics.calibration_error(
        calibrator.predict_proba(logits[real]),
        labels[real],
        binning="equal_width",
    )
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for each in (model, loaded):
        _, ece = each.evaluate(tokens, labels, verbose=0)
        # Confidences are summed in float32.
        assert ece == pytest.approx(expected, abs=1e-5)
    everything = ct.metrics.calibration_error(
        calibrator.predict_proba(logits), labels, binning="equal_width"
    )
    assert abs(everything - expected) > 1e-3
    # A step of training sees no padding either.
    wrong = np.where(real, labels, (labels + 1) % NUM_CLASSES)
    loss = model.fit(tokens, labels, batch_size=40, verbose=0).history["loss"]
    loaded.fit(tokens, wrong, batch_size=40, verbose=0)
    nll = ct.losses.nll(labels[real], calibrator.predict_proba(logits[real]))
    np.testing.assert_allclose(loss, [np.mean(nll)], rtol=1e-5)
    for one, other in zip(
        model.get_weights(), loaded.get_weights(), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_sets_keep_the_mask(sequences, tagger):
    tokens, labels, real = sequences
    logits = tagger.predict(tokens, verbose=0)
    sets = ct.posthoc.ConformalSets().fit(logits[real], labels[real])
    model = sets.append_to(tagger)
    assert model.layers[-1].supports_masking
    np.testing.assert_array_equal(
        model.predict(tokens, verbose=0)[real], sets.predict_set(logits[real])
    )
