"""Conformal sets against TorchCP and MAPIE, and what they promise."""

import math
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from sklearn.base import clone

import caltrain_tf as ct
from caltrain_tf.posthoc.base import Calibrator
from caltrain_tf.posthoc.conformal import METHODS, conformal_quantile
from tests.posthoc.data import calibrated, softmax

# Sets and thresholds of TorchCP 1.2.1, for which `torch.rand` was replaced by
# the numbers of seed 0, one for each example. MAPIE 1.6 gives the same sets
# for "thr" and the randomized "aps", the settings that both have.
GOLDEN = dict(
    np.load(pathlib.Path(__file__).parent / "golden" / "conformal.npz")
)
LOGITS, LABELS = calibrated(400, 5)


@pytest.fixture(params=METHODS)
def method(request):
    return request.param


@pytest.mark.parametrize("alpha", [0.1, 0.25])
@pytest.mark.parametrize(
    "case", ["thr", "aps", "raps", "aps_randomized", "raps_randomized"]
)
def test_sets_are_those_of_torchcp(case, alpha, monkeypatch):
    # Then the numbers are those of `np.random.default_rng([0, 1])`.
    monkeypatch.setattr("zlib.crc32", lambda content: 0)
    name, _, randomized = case.partition("_")
    conformal = ct.posthoc.ConformalSets(
        name, alpha, k_reg=2, lam=0.05, randomized=bool(randomized)
    )
    conformal.fit(GOLDEN["logits"], GOLDEN["labels"])
    expected = GOLDEN[f"{case}_{alpha}_threshold"]
    # Its penalties are of float32: seen 7e-10.
    assert conformal.threshold_ == pytest.approx(float(expected), abs=1e-8)
    np.testing.assert_array_equal(
        conformal.predict_set(GOLDEN["new_logits"]), GOLDEN[f"{case}_{alpha}"]
    )


@pytest.mark.parametrize("alpha", [0.1, 0.05, 0.5, 0.07])
def test_the_quantile_is_exact(alpha):
    rng = np.random.default_rng(0)
    for count in [*range(1, 40), 99, 100, 999]:
        scores = rng.permutation(np.arange(1.0, count + 1))
        found = conformal_quantile(scores, np.full(count, 0.3), alpha)
        # In hundredths, which have no rounding.
        rank = -(-(count + 1) * (100 - round(100 * alpha)) // 100)
        assert found == (rank if rank <= count else math.inf)


def test_a_new_example_is_covered_as_often_as_promised(method):
    # Any of n + 1 exchangeable examples is the new one. With distinct scores
    # the sets cover exactly ceil((n + 1) (1 - alpha)) of them.
    logits, labels = calibrated(40, 3, seed=1)
    conformal = ct.posthoc.ConformalSets(method, 0.2, randomized=False)
    covered = 0
    for i in range(40):
        rest = np.arange(40) != i
        conformal.fit(logits[rest], labels[rest])
        sets = conformal.predict_set(logits[i : i + 1])
        covered += sets[0, labels[i]]
    assert covered == math.ceil(40 * 0.8)


def test_coverage_of_saturated_predictions(method):
    # Half of the probabilities are 1 to the last digit, as would be the
    # scores of more than a tenth of the labels that are not randomized.
    logits, labels = calibrated(20000, 4, seed=2, scale=10.0)
    logits *= np.where(np.arange(20000) % 2, 1e3, 1.0)[:, None]
    conformal = ct.posthoc.ConformalSets(method).fit(
        logits[:10000], labels[:10000]
    )
    sets = conformal.predict_set(logits[10000:])
    # Both halves have a deviation of 0.3%.
    assert ct.metrics.coverage(sets, labels[10000:]) == pytest.approx(
        0.9, abs=0.015
    )


def test_too_few_examples_are_said_aloud(method, tmp_path):
    conformal = ct.posthoc.ConformalSets(method)
    with pytest.warns(UserWarning, match="8 examples are too few") as caught:
        conformal.fit(LOGITS[:8], LABELS[:8])
    assert caught[0].filename == __file__
    assert conformal.predict_set(LOGITS).all()
    assert np.all(conformal.as_layer()(LOGITS))
    conformal.save(tmp_path / "sets.json")
    assert ct.posthoc.load(tmp_path / "sets.json").predict_set(LOGITS).all()
    conformal.fit(LOGITS[:9], LABELS[:9])
    assert not conformal.predict_set(LOGITS).all()


def test_seeds_and_streams_of_chance():
    one, same, other = (
        ct.posthoc.ConformalSets("aps", seed=seed).fit(LOGITS, LABELS)
        for seed in (0, 0, 1)
    )
    sets = one.predict_set(LOGITS)
    np.testing.assert_array_equal(sets, same.predict_set(LOGITS))
    np.testing.assert_array_equal(sets, one.predict_set(LOGITS))
    assert np.any(sets != other.predict_set(LOGITS))


@pytest.mark.parametrize("name", ["aps", "raps"])
@pytest.mark.parametrize("seed", [0, 25])
def test_single_examples_are_covered_as_often_as_promised(name, seed):
    logits, labels = calibrated(3000, 5, seed=4)
    conformal = ct.posthoc.ConformalSets(name, seed=seed)
    conformal.fit(logits[:2000], labels[:2000])
    together = conformal.predict_set(logits[2000:])
    alone = [conformal.predict_set(row[None])[0] for row in logits[2000:]]
    for sets in (np.array(alone), together):
        # Deviations of 0.9% and 0.7% of the two parts.
        coverage = ct.metrics.coverage(sets, labels[2000:])
        assert coverage == pytest.approx(0.9, abs=0.04)


@pytest.mark.parametrize("probs", [[0.8, 0.6, 0.4], [0.8, 0.6, 0.7]])
def test_rounding_does_not_decide_on_discrete_probabilities(method, probs):
    # As of a random forest: the scores of a third of the examples are equal to
    # the threshold.
    p = np.tile(probs, 40)
    probs, labels = np.stack([p, 1 - p], axis=1), np.zeros(120, int)
    conformal = ct.posthoc.ConformalSets(
        method, from_probs=True, randomized=False
    ).fit(probs, labels)
    for each in (probs, probs.astype("float32")):
        sets = conformal.predict_set(each)
        assert ct.metrics.coverage(sets, labels) >= 0.9
        np.testing.assert_array_equal(conformal.as_layer()(each), sets)


def test_rounding_does_not_decide_on_constant_predictions(method):
    logits = np.full((300, 7), 0.3, "float32")
    labels = np.arange(300) % 7
    conformal = ct.posthoc.ConformalSets(method, 0.3, randomized=False)
    sets = conformal.fit(logits, labels).predict_set(logits)
    assert ct.metrics.coverage(sets, labels) >= 0.7
    np.testing.assert_array_equal(conformal.as_layer()(logits), sets)


def test_sets_of_saturated_predictions_are_those_of_the_layer(method):
    rng = np.random.default_rng(0)
    labels = rng.integers(6, size=2000)
    logits = rng.normal(size=(2000, 6)) + 20 * np.eye(6)[labels]
    logits = logits.astype("float32")
    conformal = ct.posthoc.ConformalSets(method, randomized=False)
    sets = conformal.fit(logits, labels).predict_set(logits)
    assert method == "thr" or 0 < 1 - conformal.threshold_ < 1e-7
    layer = np.asarray(conformal.as_layer()(logits))
    # At the threshold, the layer may have a class more.
    assert np.mean(layer != sets) < 1e-3
    assert 0.9 <= ct.metrics.set_size(sets) < 5.0


def test_weights_count_as_shares(method):
    options = {"method": method, "randomized": False}
    expected = ct.posthoc.ConformalSets(**options).fit(LOGITS, LABELS)
    for weights in (np.full(400, 1e-7), np.ones((400, 1))):
        found = ct.posthoc.ConformalSets(**options)
        found.fit(LOGITS, LABELS, weights)
        assert found.threshold_ == expected.threshold_
    weights = np.arange(400) % 2
    half = ct.posthoc.ConformalSets(**options).fit(LOGITS[1::2], LABELS[1::2])
    found = ct.posthoc.ConformalSets(**options).fit(LOGITS, LABELS, weights)
    assert found.threshold_ == half.threshold_
    ignored = ct.posthoc.ConformalSets(**options, ignore_class=-1).fit(
        LOGITS, np.where(weights, LABELS, -1)
    )
    assert ignored.threshold_ == half.threshold_
    # Of scores 1 to 4, 0.6 of the weight 10 and of the new one's 3.
    scores, weights = np.arange(1.0, 5.0), np.arange(1.0, 5.0)
    assert conformal_quantile(scores, weights, 0.4) == 4
    assert conformal_quantile(scores, weights, 0.6) == 3


def test_every_shape_is_the_two_dimensional_case(method):
    expected = ct.posthoc.ConformalSets(method).fit(LOGITS, LABELS)
    tokens = LOGITS.reshape(10, 40, 5)
    found = ct.posthoc.ConformalSets(method)
    found.fit(tokens, np.eye(5)[LABELS].reshape(10, 40, 5))
    assert found.threshold_ == expected.threshold_
    np.testing.assert_array_equal(
        found.predict_set(tokens).reshape(400, 5), expected.predict_set(LOGITS)
    )
    probs = ct.posthoc.ConformalSets(method, from_probs=True)
    probs.fit(softmax(LOGITS), LABELS)
    assert probs.threshold_ == pytest.approx(expected.threshold_, abs=1e-12)
    binary, bits = LOGITS[:, 0], (LABELS == 0).astype(int)
    pairs = np.stack([0 * binary, binary], axis=1)
    expected = ct.posthoc.ConformalSets(method).fit(pairs, bits)
    sets = expected.predict_set(pairs)
    for shape, multi_label in (
        ((400,), False),
        ((20, 20, 1), False),
        ((100, 4), True),
    ):
        found = ct.posthoc.ConformalSets(method, multi_label=multi_label)
        labels = bits.reshape(shape)
        found.fit(binary.reshape(shape), labels)
        assert found.threshold_ == expected.threshold_
        shaped = found.predict_set(binary.reshape(shape))
        if shape[-1] == 1:
            shape = shape[:-1]
        assert shaped.shape == (*shape, 2)
        np.testing.assert_array_equal(shaped.reshape(400, 2), sets)


def test_the_layer_returns_the_sets(method):
    conformal = ct.posthoc.ConformalSets(method, randomized=False)
    conformal.fit(LOGITS, LABELS)
    logits = 1.5 * LOGITS
    layer = conformal.as_layer()
    assert not isinstance(layer, ct.layers.CalibrationLayer)
    # Where no rounding to float32 decides on a class.
    fit, _ = conformal._fit_of_classes(logits, conformal.lam)
    sure = np.abs(1 - fit - conformal.threshold_) > 2e-5
    assert sure.mean() > 0.99
    for run in (layer, tf.function(layer, jit_compile=True)):
        sets = np.asarray(run(tf.constant(logits, "float32")))
        assert sets.dtype == bool
        np.testing.assert_array_equal(
            sets[sure], conformal.predict_set(logits)[sure]
        )


@pytest.mark.parametrize("name", ["aps", "raps"])
def test_the_random_layer_covers_as_often_as_the_sets(name):
    logits, labels = calibrated(20000, 5, seed=3)
    conformal = ct.posthoc.ConformalSets(name).fit(
        logits[:10000], labels[:10000]
    )
    layer = conformal.as_layer()
    once, twice = (np.asarray(layer(logits[10000:])) for _ in range(2))
    assert np.any(once != twice)
    for sets in (once, twice, conformal.predict_set(logits[10000:])):
        assert ct.metrics.coverage(sets, labels[10000:]) == pytest.approx(
            0.9, abs=0.015
        )


def test_extended_models_return_sets_of_every_shape(tmp_path):
    binary, bits = LOGITS[:, 0], (LABELS == 0).astype(int)
    options = {"method": "raps", "randomized": False}
    make = ct.posthoc.ConformalSets
    for conformal, logits, labels in (
        (make(**options), LOGITS, LABELS),
        (make(**options), binary[:, None], bits),
        (
            make(**options, multi_label=True),
            binary.reshape(100, 4),
            bits.reshape(100, 4),
        ),
        (make(**options, from_probs=True), softmax(LOGITS), LABELS),
    ):
        logits = logits.astype("float32")
        conformal.fit(logits, labels)
        inputs = keras.Input(logits.shape[1:])
        outputs = keras.layers.Identity()(inputs)
        if conformal.from_probs:
            outputs = keras.layers.Softmax()(keras.ops.log(inputs))
        model = conformal.append_to(keras.Model(inputs, outputs))
        expected = conformal.predict_set(logits)
        assert model.outputs[0].dtype == "bool"
        assert model.output_shape == (None, *expected.shape[1:])
        model.save(tmp_path / "model.keras")
        for each in (model, keras.models.load_model(tmp_path / "model.keras")):
            sets = np.asarray(each(logits))
            # Classes at the threshold are at the mercy of rounding.
            assert np.mean(sets != expected) <= 2 / expected.size
    with pytest.raises(ValueError, match="`model` must return probabilities"):
        linear = keras.Model(inputs, keras.layers.Dense(5)(inputs))
        conformal.append_to(linear)
    with pytest.raises(ValueError, match="softmax.*from_probs=True"):
        ends_in_softmax = keras.Model(inputs, outputs)
        make(**options).fit(LOGITS, LABELS).append_to(ends_in_softmax)


def test_a_random_model_survives_a_keras_file(tmp_path):
    conformal = ct.posthoc.ConformalSets("aps").fit(LOGITS, LABELS)
    inputs = keras.Input((5,))
    model = conformal.append_to(
        keras.Model(inputs, keras.layers.Identity()(inputs))
    )
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    sets = np.asarray(loaded(LOGITS))
    assert sets.shape == (400, 5)
    assert 0.8 < np.mean(sets[np.arange(400), LABELS])


def test_is_saved_cloned_and_no_calibrator(method, tmp_path):
    conformal = ct.posthoc.ConformalSets(method, np.float64(0.2), lam=0.1)
    assert not isinstance(conformal, Calibrator)
    assert not hasattr(conformal, "transform")
    for use in (
        lambda: conformal.predict_set(LOGITS),
        lambda: conformal.as_layer(),
        lambda: conformal.save(tmp_path / "sets.json"),
    ):
        with pytest.raises(ValueError, match="not fitted yet"):
            use()
    assert conformal.fit(LOGITS, LABELS) is conformal
    conformal.save(tmp_path / "sets.json")
    loaded = ct.posthoc.load(tmp_path / "sets.json")
    assert repr(loaded) == repr(conformal)
    assert "threshold_=" in repr(loaded) and "alpha=0.2" in repr(loaded)
    np.testing.assert_array_equal(
        loaded.predict_set(LOGITS), conformal.predict_set(LOGITS)
    )
    copy = clone(conformal).set_params(alpha=0.3)
    assert copy.alpha == 0.3 and not hasattr(copy, "threshold_")
    with pytest.raises(ValueError, match="5 classes .* Received: 3 classes"):
        conformal.predict_set(LOGITS[:, :3])
