"""What every calibrator has to do, for each of them."""

import json
import os

import keras
import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from caltrain_tf.posthoc import rows
from tests.posthoc.data import calibrated
from tests.posthoc.data import mean_nll
from tests.posthoc.data import softmax

CALIBRATORS = {
    "ts": ct.posthoc.TemperatureScaling(),
    "ts_sb_ece": ct.posthoc.TemperatureScaling("sb_ece", num_bins=10),
    "ts_hb_ece": ct.posthoc.TemperatureScaling("hb_ece"),
    "ensemble": ct.posthoc.EnsembleTemperatureScaling(),
    "vector": ct.posthoc.VectorScaling(cv=3),
    "matrix": ct.posthoc.MatrixScaling(cv=3),
    "dirichlet": ct.posthoc.DirichletCalibration(cv=3),
}
GIVEN_PENALTIES = {
    "vector": {"penalty": 0.1},
    "matrix": {"penalty": 0.1},
    "dirichlet": {"off_diagonal": 0.1, "intercept": 0.1},
}
PENALIZED = tuple(GIVEN_PENALTIES)
NUM_CLASSES = 4


@pytest.fixture(scope="module")
def data():
    logits, labels = calibrated(600, NUM_CLASSES)
    return (2.5 * logits).astype(np.float32), labels


@pytest.fixture(params=CALIBRATORS)
def name(request):
    return request.param


def fresh(name):
    calibrator = CALIBRATORS[name]
    return type(calibrator)(**calibrator.get_config())


@pytest.fixture(scope="module")
def fitted(data):
    cache = {}

    def get(name):
        if name not in cache:
            cache[name] = fresh(name).fit(*data)
        return cache[name]

    return get


def test_fit_returns_self(name, data):
    calibrator = fresh(name)
    assert calibrator.fit(*data) is calibrator
    for attribute in calibrator.fitted_names:
        assert attribute.endswith("_")
        assert np.all(np.isfinite(getattr(calibrator, attribute)))


def test_repairs_over_confidence_on_new_data(name, data, fitted):
    logits, labels = calibrated(4000, NUM_CLASSES, seed=1)
    after = mean_nll(fitted(name).transform(2.5 * logits), labels)
    # The hard-binned error of 600 rows is a noisy guide.
    worst = 1.05 if name == "ts_hb_ece" else 1.02
    assert after < worst * mean_nll(logits, labels)
    assert mean_nll(2.5 * logits, labels) > 1.2 * mean_nll(logits, labels)


def test_unfitted_use_says_to_fit(name, data, tmp_path):
    calibrator = fresh(name)
    model = keras.Sequential([keras.Input((NUM_CLASSES,))])
    for use in (
        lambda: calibrator.transform(data[0]),
        lambda: calibrator.predict_proba(data[0]),
        lambda: calibrator.as_layer(),
        lambda: calibrator.append_to(model),
        lambda: calibrator.save(tmp_path / "calibrator.json"),
    ):
        with pytest.raises(ValueError, match="call `fit"):
            use()


def test_probabilities_are_the_softmax_of_transformed_logits(
    name, data, fitted
):
    probs = fitted(name).predict_proba(data[0])
    expected = softmax(fitted(name).transform(data[0]))
    assert probs.dtype == np.float32
    np.testing.assert_allclose(probs, expected, rtol=1e-4, atol=1e-7)


def test_input_is_not_changed(name, data, fitted):
    before = data[0].copy()
    fitted(name).predict_proba(data[0])
    np.testing.assert_array_equal(data[0], before)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_layer_does_what_transform_does(name, data, fitted, jit_compile):
    layer = fitted(name).as_layer()
    assert not layer.trainable_weights
    run = tf.function(layer, jit_compile=jit_compile)
    np.testing.assert_allclose(
        run(tf.constant(data[0])),
        fitted(name).transform(data[0]),
        rtol=1e-4,
        atol=1e-4,
    )


def test_extended_model_survives_a_keras_file(name, data, fitted, tmp_path):
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(NUM_CLASSES)]
    )
    model = fitted(name).append_to(model)
    model.save(tmp_path / "model.keras")
    reloaded = keras.models.load_model(tmp_path / "model.keras")
    inputs = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    plain = keras.Model(model.inputs, model.layers[-2].output)
    expected = fitted(name).transform(plain.predict(inputs, verbose=0))
    for each in (model, reloaded):
        np.testing.assert_allclose(
            each.predict(inputs, verbose=0), expected, rtol=1e-4, atol=1e-4
        )


def test_append_to_needs_one_output_of_the_same_classes(name, fitted):
    inputs = keras.Input((NUM_CLASSES,))
    two = keras.Model(inputs, [inputs, inputs + 1])
    with pytest.raises(ValueError, match="`model` must"):
        fitted(name).append_to(two)
    with pytest.raises(ValueError, match="`model` must"):
        fitted(name).append_to(keras.Sequential([keras.layers.Dense(3)]))


def test_saves_and_loads(name, data, fitted, tmp_path):
    path = tmp_path / "calibrator.json"
    fitted(name).save(path)
    loaded = ct.posthoc.load(path)
    assert repr(loaded) == repr(fitted(name))
    np.testing.assert_array_equal(
        loaded.transform(data[0]), fitted(name).transform(data[0])
    )
    assert os.listdir(tmp_path) == ["calibrator.json"]
    assert json.loads(path.read_text())["version"] == 1


class Wrapped:
    """Something that is an array only by protocol."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype=dtype)


@pytest.mark.parametrize("convert", [tf.constant, Wrapped, np.ndarray.tolist])
def test_takes_tensors_and_arrays_by_protocol(name, data, fitted, convert):
    logits, labels = data
    calibrator = fresh(name).fit(convert(logits), convert(labels))
    np.testing.assert_allclose(
        calibrator.transform(convert(logits[:9])),
        fitted(name).transform(logits[:9]),
        rtol=1e-3,
        atol=1e-3,
    )


def test_one_hot_labels_are_ids(name, data, fitted):
    logits, labels = data
    calibrator = fresh(name).fit(logits, np.eye(NUM_CLASSES)[labels])
    np.testing.assert_array_equal(
        calibrator.transform(logits), fitted(name).transform(logits)
    )


@pytest.mark.parametrize("shuffle", [False, True])
def test_dataset_gives_what_arrays_give(name, data, shuffle, monkeypatch):
    calibrator = CALIBRATORS[name]
    options = {} if name not in PENALIZED else GIVEN_PENALTIES[name]
    expected = type(calibrator)(**{**calibrator.get_config(), **options})
    streamed = type(calibrator)(**expected.get_config())
    monkeypatch.setattr(rows, "SMALL_BYTES", 0)
    dataset = tf.data.Dataset.from_tensor_slices(data)
    dataset = dataset.shuffle(600, seed=0) if shuffle else dataset
    np.testing.assert_allclose(
        streamed.fit(dataset.batch(256)).predict_proba(data[0]),
        expected.fit(*data).predict_proba(data[0]),
        atol=1e-3,
    )


def test_small_datasets_are_read_once(name, data, fitted):
    passes = []

    def batches():
        passes.append(1)
        yield data

    spec = (tf.TensorSpec((None, NUM_CLASSES)), tf.TensorSpec((None,), "int64"))
    dataset = tf.data.Dataset.from_generator(batches, output_signature=spec)
    calibrator = fresh(name).fit(dataset)
    # Once to learn the number of classes.
    assert len(passes) == 2
    np.testing.assert_array_equal(
        calibrator.transform(data[0]), fitted(name).transform(data[0])
    )


def test_memory_mapped_file_gives_what_arrays_give(
    name, data, fitted, tmp_path
):
    np.save(tmp_path / "logits.npy", data[0])
    logits = np.load(tmp_path / "logits.npy", mmap_mode="r")
    np.testing.assert_array_equal(
        fresh(name).fit(logits, data[1]).transform(logits),
        fitted(name).transform(data[0]),
    )


def test_transforms_datasets(name, data, fitted):
    logits, labels = data
    expected = fitted(name).transform(logits[:6])
    pairs = tf.data.Dataset.from_tensor_slices((logits[:6], labels[:6]))
    for dataset in (pairs.batch(3), pairs.batch(3).map(lambda x, y: x)):
        batches = list(fitted(name).transform(dataset))
        if isinstance(batches[0], tuple):
            batches = [batch[0] for batch in batches]
        np.testing.assert_allclose(
            np.concatenate(batches), expected, rtol=1e-4, atol=1e-4
        )
    probs = next(iter(fitted(name).predict_proba(pairs.batch(6))))[0]
    np.testing.assert_allclose(np.sum(probs, axis=1), 1.0, rtol=1e-5)


@pytest.mark.parametrize("num_classes", [2, 1000])
def test_few_rows_of_few_and_many_classes(name, num_classes):
    logits, labels = calibrated(60, num_classes, seed=3)
    options = CALIBRATORS[name].get_config()
    if num_classes == 1000 and name in PENALIZED:
        options = {**GIVEN_PENALTIES[name], "max_iterations": 3}
    calibrator = type(CALIBRATORS[name])(**options)
    calibrator.fit(logits.astype(np.float32), labels)
    assert np.all(np.isfinite(calibrator.transform(logits)))


@pytest.mark.filterwarnings("ignore:.*determine no temperature")
@pytest.mark.parametrize("num_rows", [1, 3])
def test_separable_sets_give_finite_answers(name, num_rows):
    logits = 5.0 * np.eye(3)[:num_rows]
    with pytest.warns(UserWarning, match="determine no temperature"):
        calibrator = fresh(name).fit(logits, np.arange(num_rows))
    probs = calibrator.predict_proba(logits)
    assert np.all(np.isfinite(probs)) and np.all(probs.argmax(1) < 3)


@pytest.mark.parametrize("name", PENALIZED)
def test_a_fit_for_other_classes_is_an_error(fitted, name):
    with pytest.raises(ValueError, match="4 classes .* Received: 3 classes"):
        fitted(name).transform(np.zeros((2, 3)))
    inputs = keras.Input((3,))
    with pytest.raises(ValueError, match="Received: 3 classes"):
        fitted(name).append_to(keras.Model(inputs, inputs + 1))
    with pytest.raises(ValueError, match="Received: 3 classes"):
        fitted(name).transform(
            tf.data.Dataset.from_tensor_slices(np.zeros((2, 3))).batch(1)
        )
