"""What holds for every streaming metric."""

import inspect
import json

import keras
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from caltrain_tf import metrics
from tests.metrics.cases import CASES, probabilities, sample

# Each streaming metric with the exact function that it follows.
PAIRS = {
    "ece": (metrics.ExpectedCalibrationError, metrics.calibration_error),
    "marginal_ece": (
        metrics.MarginalCalibrationError,
        metrics.marginal_calibration_error,
    ),
    "ks_error": (metrics.KSError, metrics.ks_error),
    "brier": (metrics.BrierScore, metrics.brier_score),
    "nll": (metrics.NegativeLogLikelihood, metrics.negative_log_likelihood),
    "average_uncertainty": (
        metrics.AverageUncertainty,
        metrics.average_uncertainty,
    ),
    "sb_ece": (
        metrics.SoftBinnedECE,
        lambda probs, labels, from_logits=False: float(
            ct.losses.sb_ece(labels, probs, from_logits=from_logits)
        ),
    ),
}
# Histograms are within 2e-4 of the exact value by contract. Else ten times the
# largest error seen; a mistake in one of 100 examples changes 1e-3 and more.
NEAR = dict.fromkeys(PAIRS, 3e-5) | dict.fromkeys(
    ("ece", "marginal_ece", "ks_error"), 2e-4
)
# One of each kind of state: what a network is compiled with, as far as that
# takes time. The others differ in what they sum.
KINDS = ("ece", "marginal_ece", "brier", "sb_ece")
all_metrics = pytest.mark.parametrize("name", PAIRS)


def stream(metric, labels, preds, sample_weight=None):
    # In two batches of different sizes.
    first = 2 * len(preds) // 3
    for rows in (slice(first), slice(first, None)):
        weight = None if sample_weight is None else sample_weight[rows]
        metric.update_state(labels[rows], preds[rows], weight)
    return float(metric.result())


@all_metrics
def test_equals_the_exact_metric(name):
    kind, exact = PAIRS[name]
    for case, (probs, labels) in CASES.items():
        assert stream(kind(), labels, probs) == pytest.approx(
            exact(probs, labels), abs=NEAR[name]
        ), case


@all_metrics
def test_of_logits(name):
    kind, exact = PAIRS[name]
    logits, labels = sample(300, 5)
    assert stream(kind(from_logits=True), labels, logits) == pytest.approx(
        exact(logits, labels, from_logits=True), abs=NEAR[name]
    )


@all_metrics
def test_default_name(name):
    assert PAIRS[name][0]().name == name


@all_metrics
def test_labels_may_be_ids_columns_or_one_hot(name):
    kind, _ = PAIRS[name]
    probs, labels = probabilities(200, 4)
    expected = stream(kind(), labels, probs)
    for form in (labels[:, None], np.eye(4)[labels], labels.astype("float32")):
        assert stream(kind(), form, probs) == pytest.approx(expected, abs=1e-7)


@all_metrics
def test_whole_weights_are_repetitions(name):
    kind, exact = PAIRS[name]
    probs, labels = probabilities(300, 4)
    weight = np.random.default_rng(0).integers(0, 4, 300)
    repeated = exact(np.repeat(probs, weight, 0), np.repeat(labels, weight))
    # Repetitions are ties, which weights in a shared cell do not know of.
    assert stream(
        kind(), labels, probs, sample_weight=weight.astype("float32")
    ) == pytest.approx(repeated, abs=1e-4)


@all_metrics
def test_the_scale_of_weights_does_not_matter(name):
    kind, _ = PAIRS[name]
    probs, labels = probabilities(300, 4)
    weight = np.random.default_rng(0).random(300).astype("float32")
    first = stream(kind(), labels, probs, sample_weight=weight)
    second = stream(kind(), labels, probs, sample_weight=weight * 1e-3)
    assert second == pytest.approx(first, rel=1e-4)


@all_metrics
def test_rows_of_weight_zero_leave_no_trace(name):
    kind, exact = PAIRS[name]
    probs, labels = probabilities(200, 4)
    padded = np.concatenate([probs, np.full((50, 4), np.nan, "float32")])
    padded_labels = np.concatenate([labels, np.full(50, -1)])
    weight = np.repeat([1.0, 0.0], [200, 50]).astype("float32")
    value = stream(kind(), padded_labels, padded, sample_weight=weight)
    assert value == pytest.approx(exact(probs, labels), abs=NEAR[name])


@all_metrics
def test_reset_and_empty(name):
    kind, _ = PAIRS[name]
    probs, labels = probabilities(200, 4)
    metric = kind()
    assert float(metric.result()) == 0
    first = stream(metric, labels, probs)
    metric.reset_state()
    assert float(metric.result()) == 0
    assert stream(metric, labels, probs) == first


@all_metrics
def test_merge_state(name):
    kind, _ = PAIRS[name]
    probs, labels = probabilities(300, 4)
    whole = stream(kind(), labels, probs)
    parts = [kind() for _ in range(3)]
    for i, part in enumerate(parts):
        stream(part, labels[i::3], probs[i::3])
    merged = kind()
    # One that saw nothing adds nothing.
    merged.merge_state([*parts, kind()])
    assert float(merged.result()) == pytest.approx(whole, abs=1e-6)
    with pytest.raises(ValueError, match="`metrics` must hold"):
        merged.merge_state([kind(from_logits=True)])


@all_metrics
def test_empty_batches_add_nothing(name):
    kind, _ = PAIRS[name]
    probs, labels = probabilities(200, 4)
    metric = kind()
    expected = stream(metric, labels, probs)
    metric.update_state(labels[:0], probs[:0])
    assert float(metric.result()) == expected
    kind().update_state(labels[:0], probs[:0])


@all_metrics
def test_says_what_it_is(name):
    kind, _ = PAIRS[name]
    metric = kind(from_logits=True)
    assert eval(repr(metric), vars(metrics)).get_config() == metric.get_config()
    assert repr(metric).startswith(f"{kind.__name__}(")
    assert metric._direction == "down"  # What Keras' callbacks look for.
    # What `help` shows has every argument.
    for parameter in inspect.signature(kind).parameters:
        assert f"\n    {parameter}: " in inspect.getdoc(kind), parameter


def test_options_of_numpy_are_saved_as_plain_ones():
    metric = metrics.ExpectedCalibrationError(
        np.int64(10), np.float32(2), np.str_("equal_width"), debias=np.bool_(1)
    )
    assert json.loads(json.dumps(metric.get_config())) == metric.get_config()
    marginal = metrics.MarginalCalibrationError(num_classes=np.int64(4))
    assert type(marginal.num_classes) is int
    soft = metrics.SoftBinnedECE(np.int8(3), np.float64(0.1), root=np.bool_(0))
    json.dumps([marginal.get_config(), soft.get_config()])


@all_metrics
def test_probabilities_of_bfloat16(name):
    # Rounded to 8 bits, rows of 1000 classes sum to 1 within half a percent:
    # the exact and the streaming metric both take them.
    kind, exact = PAIRS[name]
    probs, labels = probabilities(100, 1000, scale=3.0)
    probs = probs.astype(ml_dtypes.bfloat16)
    assert np.abs(probs.astype("float32").sum(axis=1) - 1).max() > 1e-3
    # The many ties of 8 bits are what cells shared by them do not know of.
    assert stream(kind(), labels, probs) == pytest.approx(
        exact(probs, labels), abs=5e-4
    )


@all_metrics
def test_round_trip_through_its_config(name):
    kind, _ = PAIRS[name]
    metric = kind(from_logits=True, name="mine")
    config = keras.saving.serialize_keras_object(metric)
    again = keras.saving.deserialize_keras_object(config)
    assert type(again) is kind
    assert again.get_config() == metric.get_config()


def model():
    return keras.Sequential(
        [keras.layers.Input((3,)), keras.layers.Dense(4, name="logits")]
    )


def compiled_model(names, jit_compile):
    keras.utils.set_random_seed(0)
    network = model()
    network.compile(
        # The weights stay, so that all batches are of one network.
        optimizer=keras.optimizers.SGD(0.0),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=[PAIRS[name][0](from_logits=True) for name in names],
        jit_compile=jit_compile,
    )
    return network


def check_logs(logs, logits, labels):
    for name in KINDS:
        expected = PAIRS[name][1](logits, labels, from_logits=True)
        assert logs[name] == pytest.approx(expected, abs=NEAR[name]), name


def test_in_a_model_that_is_compiled_by_xla_saved_and_loaded(tmp_path):
    network = compiled_model(KINDS, jit_compile=True)
    images = np.random.default_rng(0).normal(size=(100, 3)).astype("float32")
    _, labels = probabilities(100, 4)
    data = images, labels, 50
    logs = network.evaluate(*data, verbose=0, return_dict=True)
    check_logs(logs, network(images), labels)
    network.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    # Not compiled a second time: loading is what this is about.
    again.jit_compile, again.run_eagerly = False, True
    logs = again.evaluate(*data, verbose=0, return_dict=True)
    check_logs(logs, network(images), labels)


def test_in_model_fit_over_two_replicas(two_replicas):
    with two_replicas.scope():
        network = compiled_model(KINDS, jit_compile=False)
    images = np.random.default_rng(0).normal(size=(128, 3)).astype("float32")
    _, labels = probabilities(128, 4)
    data = tf.data.Dataset.from_tensor_slices((images, labels)).batch(32)
    # They find out by themselves that less is better.
    callbacks = [keras.callbacks.EarlyStopping(name) for name in KINDS]
    history = network.fit(
        data, verbose=0, shuffle=False, callbacks=callbacks
    ).history
    logs = {name: value for name, (value,) in history.items()}
    logits = images @ network.layers[0].kernel.numpy()
    logits = logits + network.layers[0].bias.numpy()
    check_logs(logs, logits, labels)
    assert all(callback._is_improvement(0.1, 0.2) for callback in callbacks)


@all_metrics
def test_invalid_labels_raise_when_they_can_be_seen(name):
    probs, labels = probabilities(10, 4)
    labels[7] = 4
    with pytest.raises(ValueError, match=r"y_true\[7\]=4"):
        PAIRS[name][0]().update_state(labels, probs)


@all_metrics
def test_nan_predictions_show(name):
    logits, labels = sample(10, 4)
    logits[3] = np.nan
    metric = PAIRS[name][0](from_logits=True)
    metric.update_state(labels, logits)
    assert np.isnan(float(metric.result()))
