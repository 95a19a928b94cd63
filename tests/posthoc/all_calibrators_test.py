"""What every calibrator has to do, for each of them."""

import contextlib
import json
import os

import keras
import numpy as np
import pytest
import tensorflow as tf
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import caltrain_tf as ct
from tests.posthoc.data import calibrated, mean_nll, softmax

# Of the few examples of these tests.
pytestmark = pytest.mark.filterwarnings("ignore:.*cross-validated NLL")

CALIBRATORS = {
    "ts": ct.posthoc.TemperatureScaling(),
    "ts_sb_ece": ct.posthoc.TemperatureScaling("sb_ece", num_bins=10),
    "ts_hb_ece": ct.posthoc.TemperatureScaling("hb_ece"),
    "ensemble": ct.posthoc.EnsembleTemperatureScaling(),
    "vector": ct.posthoc.VectorScaling(),
    "matrix": ct.posthoc.MatrixScaling(),
    "dirichlet": ct.posthoc.DirichletCalibration(),
    "structured_vector": ct.posthoc.StructuredVectorScaling(),
    "structured_matrix": ct.posthoc.StructuredMatrixScaling(),
    "platt": ct.posthoc.PlattScaling(),
    "beta": ct.posthoc.BetaCalibration(),
    "isotonic": ct.posthoc.IsotonicCalibration(),
}
GIVEN_PENALTIES = {
    "vector": {"penalty": 0.1},
    "matrix": {"penalty": 0.1},
    "dirichlet": {"off_diagonal": 0.1, "intercept": 0.1},
    "structured_vector": {"strength": 1.0},
    "structured_matrix": {"strength": 1.0},
}
PENALIZED = tuple(GIVEN_PENALTIES)
# One of each kind of layer.
ONE_OF_EACH = ("ts", "ensemble", "vector", "structured_matrix")
# Without a temperature.
CURVES = ("platt", "beta", "isotonic")
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
    return type(calibrator)(**calibrator.get_params())


@pytest.fixture(scope="module")
def fitted(data):
    cache = {}

    def get(name):
        if name not in cache:
            cache[name] = fresh(name).fit(*data)
        return cache[name]

    return get


def test_repairs_over_confidence_on_new_data(name, data, fitted):
    logits, labels = calibrated(4000, NUM_CLASSES, seed=1)
    after = mean_nll(fitted(name).transform(2.5 * logits), labels)
    # The hard-binned error of 600 rows is a noisy guide, and isotonic curves
    # have many parameters.
    worst = {"ts_hb_ece": 1.05, "isotonic": 1.1}.get(name, 1.02)
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
        with pytest.raises(ValueError, match="not fitted yet"):
            use()


def test_probabilities_are_the_softmax_of_transformed_logits(
    name, data, fitted
):
    before = data[0].copy()
    probs = fitted(name).predict_proba(data[0])
    np.testing.assert_array_equal(data[0], before)
    expected = softmax(fitted(name).transform(data[0]))
    assert probs.dtype == np.float32
    np.testing.assert_allclose(probs, expected, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("name", (*ONE_OF_EACH, *CURVES))
def test_layer_does_what_transform_does(name, data, fitted):
    layer = fitted(name).as_layer()
    assert not layer.trainable_weights
    run = tf.function(layer, jit_compile=True)
    np.testing.assert_allclose(
        run(tf.constant(data[0])),
        fitted(name).transform(data[0]),
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_extended_model_survives_a_keras_file(name, data, fitted, tmp_path):
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(NUM_CLASSES)]
    )
    model = fitted(name).append_to(model)
    model.save(tmp_path / "model.keras")
    reloaded = keras.models.load_model(tmp_path / "model.keras")
    inputs = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    plain = keras.Model(model.inputs[0], model.layers[-2].output)
    expected = fitted(name).transform(plain(inputs))
    for each in (model, reloaded):
        np.testing.assert_allclose(each(inputs), expected, rtol=1e-4, atol=1e-4)


def test_a_sequential_model_may_be_part_of_another(fitted):
    network = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(NUM_CLASSES)]
    )
    keras.Sequential([network, keras.layers.Softmax()])
    model = fitted(ONE_OF_EACH[0]).append_to(network)
    inputs = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    expected = fitted(ONE_OF_EACH[0]).transform(network(inputs))
    np.testing.assert_allclose(model(inputs), expected, rtol=1e-4, atol=1e-4)


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


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_append_to_twice_and_with_probabilities(name, data, fitted):
    inputs = keras.Input((NUM_CLASSES,))
    model = keras.Model(inputs, keras.layers.Dense(NUM_CLASSES)(inputs))
    once = fitted(name).append_to(model)
    twice = fitted(name).append_to(once)
    x = data[0][:5]
    np.testing.assert_allclose(
        twice(x), fitted(name).as_layer()(once(x)), rtol=1e-5, atol=1e-5
    )
    probs = fitted(name).append_to(model, probabilities=True)
    np.testing.assert_allclose(
        probs(x), fitted(name).predict_proba(model(x)), rtol=1e-4, atol=1e-6
    )
    with pytest.raises(ValueError, match="softmax.*from_probs=True"):
        fitted(name).append_to(probs)


ENDS = {
    "activation": lambda x: keras.layers.Dense(4, activation="softmax")(x),
    "layer": lambda x: keras.layers.Softmax()(x),
    "sigmoid": lambda x: keras.layers.Activation("sigmoid")(x),
    "function": lambda x: keras.ops.softmax(x),
    "nested": lambda x: keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(4, "softmax")]
    )(x),
}


@pytest.mark.parametrize("end", ENDS)
def test_append_to_refuses_a_model_of_the_other_kind(end, fitted):
    inputs = keras.Input((NUM_CLASSES,))
    ends_in_softmax = keras.Model(inputs, ENDS[end](inputs))
    with pytest.raises(ValueError, match="`model`.*from_probs=True"):
        fitted("ts").append_to(ends_in_softmax)
    linear = keras.Model(inputs, keras.layers.Dense(4)(inputs))
    takes_probs = ct.posthoc.TemperatureScaling(from_probs=True)
    takes_probs.temperature_, takes_probs.num_classes_ = 2.0, 4
    takes_probs.append_to(ends_in_softmax)
    with pytest.raises(ValueError, match="activation 'linear'"):
        takes_probs.append_to(linear)


class Subclassed(keras.Model):
    def call(self, x):
        return x


def test_other_models_are_told_of_as_layer(fitted):
    inputs = keras.Input((NUM_CLASSES,))
    for model in (
        Subclassed(),
        keras.Sequential([keras.layers.Dense(3)]),
        keras.Model(inputs, [inputs, inputs + 1]),
        keras.Model(inputs, {"a": inputs + 1, "b": inputs}),
        "model",
    ):
        with pytest.raises(ValueError, match=r"`model` must.*as_layer\(\)"):
            fitted("ts").append_to(model)


def test_repr_says_what_a_fit_found(name, data, fitted):
    assert repr(fresh(name)) == repr(CALIBRATORS[name])
    assert "temperature_" not in repr(fresh(name))
    shown = repr(fitted(name))
    assert all(f"{each}=" in shown for each in fitted(name).fitted_names)
    if name == "ts_sb_ece":
        temperature = f"{fitted(name).temperature_:.6f}".rstrip("0")
        assert shown.startswith(
            "TemperatureScaling(num_bins=10, objective='sb_ece', "
            f"temperature_={temperature}"
        )


def test_probabilities_for_logits_are_said_aloud(name, data, fitted):
    probs = fitted(name).predict_proba(data[0])
    with pytest.warns(UserWarning, match="from_probs=True") as caught:
        fresh(name).fit(probs, data[1])
    # The line that called `fit`, not one of this package.
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="look like probabilities"):
        fitted(name).transform(probs)


def test_scikit_learn_clones_and_sets_options(name, data, fitted):
    copy = clone(fitted(name))
    assert copy.get_params() == fitted(name).get_params()
    assert repr(copy) == repr(fresh(name))
    with pytest.raises(ValueError, match="`from_probs`"):
        copy.set_params(from_probs=3)
    with pytest.raises(TypeError, match="colour"):
        copy.set_params(colour=3)
    assert copy.set_params(ignore_class=np.int64(2)).ignore_class == 2
    assert type(copy.ignore_class) is int
    np.testing.assert_array_equal(fitted(name).classes_, np.arange(4))
    predicted = fitted(name).predict(data[0])
    np.testing.assert_array_equal(
        predicted, fitted(name).transform(data[0]).argmax(axis=1)
    )
    assert fitted(name).score(*data) == np.mean(predicted == data[1])


@pytest.mark.parametrize("name", PENALIZED)
def test_a_fit_that_does_not_converge_says_so(name, data, monkeypatch):
    monkeypatch.setattr("caltrain_tf.posthoc.affine.ITERATIONS", 1)
    calibrator = type(CALIBRATORS[name])(**GIVEN_PENALTIES[name])
    with pytest.warns(ConvergenceWarning, match="did not converge") as caught:
        calibrator.fit(*data)
    assert caught[0].filename == __file__


class Wrapped:
    """Something that is an array only by protocol."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype=dtype)


@pytest.mark.parametrize("convert", [tf.constant, Wrapped])
def test_takes_tensors_and_arrays_by_protocol(data, fitted, convert):
    logits, labels = data
    calibrator = fresh("ts").fit(convert(logits), convert(labels))
    np.testing.assert_array_equal(
        calibrator.transform(convert(logits[:9])),
        fitted("ts").transform(logits[:9]),
    )


@pytest.mark.parametrize("name", ["ts_sb_ece", "vector"])
def test_memory_mapped_file_gives_what_arrays_give(
    name, data, fitted, tmp_path
):
    np.save(tmp_path / "logits.npy", data[0])
    logits = np.load(tmp_path / "logits.npy", mmap_mode="r")
    np.testing.assert_array_equal(
        fresh(name).fit(logits, data[1]).transform(logits),
        fitted(name).transform(data[0]),
    )


@pytest.mark.filterwarnings("ignore:The fit did not converge")
@pytest.mark.filterwarnings("ignore:A curve separates the labels")
@pytest.mark.parametrize("num_classes", [2, 150])
def test_few_rows_of_few_and_many_classes(name, num_classes, monkeypatch):
    logits, labels = calibrated(60, num_classes, seed=3)
    options = CALIBRATORS[name].get_params()
    if num_classes > 100 and name in PENALIZED:
        monkeypatch.setattr("caltrain_tf.posthoc.affine.ITERATIONS", 3)
        options = GIVEN_PENALTIES[name]
    calibrator = type(CALIBRATORS[name])(**options)
    calibrator.fit(logits.astype(np.float32), labels)
    assert np.all(np.isfinite(calibrator.transform(logits)))


@pytest.mark.filterwarnings("ignore:.*determine no temperature")
@pytest.mark.filterwarnings("ignore:A curve separates the labels")
@pytest.mark.parametrize("num_rows", [1, 3])
def test_separable_sets_give_finite_answers(name, num_rows):
    logits = 5.0 * np.eye(3)[:num_rows]
    says = pytest.warns(UserWarning, match="determine no temperature")
    with contextlib.nullcontext() if name in CURVES else says:
        calibrator = fresh(name).fit(logits, np.arange(num_rows))
    probs = calibrator.predict_proba(logits)
    assert np.all(np.isfinite(probs)) and np.all(probs.argmax(1) < 3)


def test_a_fit_for_other_classes_is_an_error(fitted, name):
    with pytest.raises(ValueError, match="4 classes .* Received: 3 classes"):
        fitted(name).transform(np.zeros((2, 3)))
    inputs = keras.Input((3,))
    with pytest.raises(ValueError, match="Received: 3 classes"):
        fitted(name).append_to(keras.Model(inputs, inputs + 1))
    dataset = tf.data.Dataset.from_tensor_slices(np.zeros((2, 4))).batch(1)
    with pytest.raises(ValueError, match="`as_layer.*over a dataset"):
        fitted(name).transform(dataset)


@pytest.mark.parametrize("largest", [1e9, 1e30])
@pytest.mark.parametrize(
    "name", ["PlattScaling", "BetaCalibration", "StructuredMatrixScaling"]
)
def test_masked_classes_do_not_spoil_the_fit(name, largest):
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(1500, 4))
    masked = rng.random(logits.shape) < 0.2
    masked[:, 0] = False
    true = np.where(masked, -np.inf, logits * [1, 0.4, 1, 2] + [1, 0, -1, 0])
    labels = (true + rng.gumbel(size=true.shape)).argmax(axis=1)
    losses = []
    for value in (-50.0, -largest):
        here = np.where(masked, value, logits)
        calibrator = getattr(ct.posthoc, name)().fit(here, labels)
        outputs = calibrator.transform(here)
        np.testing.assert_allclose(
            keras.ops.softmax(calibrator.as_layer()(here)),
            keras.ops.softmax(outputs.astype("float32")),
            atol=1e-5,
        )
        losses.append(
            ct.metrics.negative_log_likelihood(
                outputs, labels, from_logits=True
            )
        )
    # 0.2 with temperature scaling.
    assert losses[1] == pytest.approx(losses[0], abs=0.02)
