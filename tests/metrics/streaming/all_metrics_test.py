"""What holds for every streaming metric."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from caltrain_tf import metrics
from tests.metrics.cases import CASES
from tests.metrics.cases import probabilities
from tests.metrics.cases import sample

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
all_metrics = pytest.mark.parametrize("name", PAIRS)


def stream(metric, labels, preds, batch_size=100, sample_weight=None):
    for i in range(0, len(preds), batch_size):
        rows = slice(i, i + batch_size)
        weight = None if sample_weight is None else sample_weight[rows]
        metric.update_state(labels[rows], preds[rows], weight)
    return float(metric.result())


@all_metrics
@pytest.mark.parametrize("case", CASES)
def test_equals_the_exact_metric(name, case):
    kind, exact = PAIRS[name]
    probs, labels = CASES[case]
    assert stream(kind(), labels, probs) == pytest.approx(
        exact(probs, labels), abs=1e-5
    )


@all_metrics
def test_of_logits(name):
    kind, exact = PAIRS[name]
    logits, labels = sample(300, 5)
    assert stream(kind(from_logits=True), labels, logits) == pytest.approx(
        exact(logits, labels, from_logits=True), abs=1e-5
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
    assert value == pytest.approx(exact(probs, labels), abs=1e-5)


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
    merged.merge_state(parts)
    assert float(merged.result()) == pytest.approx(whole, abs=1e-6)
    with pytest.raises(ValueError, match="`metrics` must hold"):
        merged.merge_state([kind(from_logits=True)])


@all_metrics
def test_round_trip_through_its_config(name):
    kind, _ = PAIRS[name]
    metric = kind(from_logits=True, name="mine")
    config = keras.saving.serialize_keras_object(metric)
    again = keras.saving.deserialize_keras_object(config)
    assert type(again) is kind
    assert again.get_config() == metric.get_config()


@all_metrics
def test_compiled_by_xla(name):
    kind, _ = PAIRS[name]
    probs, labels = probabilities(300, 4)
    expected = stream(kind(), labels, probs)
    metric = kind()
    metric.update_state(labels, probs)
    metric.reset_state()
    update = tf.function(metric.update_state, jit_compile=True, autograph=False)
    for i in range(0, 300, 100):
        update(
            tf.constant(labels[i : i + 100]), tf.constant(probs[i : i + 100])
        )
    result = tf.function(metric.result, jit_compile=True, autograph=False)
    assert float(result()) == pytest.approx(expected, abs=1e-6)


@all_metrics
def test_two_replicas(name, two_replicas):
    kind, exact = PAIRS[name]
    probs, labels = probabilities(320, 4)
    options = {"num_classes": 4} if name == "marginal_ece" else {}
    with two_replicas.scope():
        metric = kind(**options)
    data = tf.data.Dataset.from_tensor_slices((labels, probs)).batch(64)

    @tf.function
    def step(batch_labels, batch_probs):
        two_replicas.run(metric.update_state, (batch_labels, batch_probs))

    for batch in two_replicas.experimental_distribute_dataset(data):
        step(*batch)
    assert float(metric.result()) == pytest.approx(
        exact(probs, labels), abs=1e-5
    )


def model():
    return keras.Sequential(
        [keras.layers.Input((3,)), keras.layers.Dense(4, name="logits")]
    )


def compiled_metrics():
    return [kind(from_logits=True) for kind, _ in PAIRS.values()]


def compiled_model(jit_compile, **options):
    keras.utils.set_random_seed(0)
    network = model()
    network.compile(
        **options,
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=compiled_metrics(),
        jit_compile=jit_compile,
    )
    return network


def check_logs(logs, logits, labels):
    for name, (_, exact) in PAIRS.items():
        expected = exact(logits, labels, from_logits=True)
        assert logs[name] == pytest.approx(expected, abs=1e-5), name


def test_in_a_saved_model(tmp_path):
    network = compiled_model(jit_compile=False)
    images = np.random.default_rng(0).normal(size=(130, 3)).astype("float32")
    _, labels = probabilities(130, 4)
    network.fit(images, labels, batch_size=50, verbose=0)
    network.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    logs = again.evaluate(
        images, labels, batch_size=50, verbose=0, return_dict=True
    )
    check_logs(logs, network(images), labels)


def test_in_a_model_that_is_compiled_by_xla():
    network = compiled_model(jit_compile=True)
    images = np.random.default_rng(0).normal(size=(100, 3)).astype("float32")
    _, labels = probabilities(100, 4)
    logs = network.evaluate(
        images, labels, batch_size=50, verbose=0, return_dict=True
    )
    check_logs(logs, network(images), labels)


def test_in_model_fit_over_two_replicas(two_replicas):
    # The weights stay, so that all batches are of one network.
    with two_replicas.scope():
        network = compiled_model(
            jit_compile=False, optimizer=keras.optimizers.SGD(0.0)
        )
    images = np.random.default_rng(0).normal(size=(128, 3)).astype("float32")
    _, labels = probabilities(128, 4)
    data = tf.data.Dataset.from_tensor_slices((images, labels)).batch(32)
    history = network.fit(data, verbose=0, shuffle=False).history
    logs = {name: value for name, (value,) in history.items()}
    logits = images @ network.layers[0].kernel.numpy()
    check_logs(logs, logits + network.layers[0].bias.numpy(), labels)


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
