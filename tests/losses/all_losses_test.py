"""What every loss must do: formulas, gradients, edges, precisions, errors."""

import json
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

import caltrain_tf as ct
from tests.losses import naive
from tests.losses.cases import NAMES
from tests.losses.cases import PRIMARY
from tests.losses.cases import SECONDARY
from tests.losses.cases import VARIANTS
from tests.losses.cases import batch

ALL = {**PRIMARY, **SECONDARY}
GOLDEN = pathlib.Path(__file__).parent / "golden"
GOLDEN_VALUES = json.loads((GOLDEN / "values.json").read_text())["values"]


def value_and_gradient(function, labels, y_pred, **options):
    y_pred = tf.convert_to_tensor(y_pred)
    with tf.GradientTape() as tape:
        tape.watch(y_pred)
        value = function(labels, y_pred, **options)
        total = tf.reduce_sum(value)
    return value, tape.gradient(total, y_pred)


def golden_call(key):
    """The call of ours that a key of the released code's values means."""
    kind, *settings = key.split("/")
    options = dict(setting.split("=") for setting in settings)
    if kind == "avuc":
        return ct.losses.avuc, {
            "threshold": float(options["threshold"]),
            "stop_gradient": options["stop"] == "True",
        }
    if kind == "soft_avuc":
        return ct.losses.soft_avuc, {
            "threshold": float(options["theta"]),
            "temperature": float(options["temp"]),
        }
    num_bins = int(options["bins"])
    if "decay" in options:
        decay = np.log(float(options["decay"]))
        temperature = float(1 / (decay * num_bins**2))
    else:
        temperature = float(options["temp"])
    shared = {"num_bins": num_bins, "temperature": temperature}
    if kind == "sb_ece_l2":
        return ct.losses.sb_ece, {"binning": "bin", **shared}
    return ct.losses.sb_ece, {"root": False, "lower": "chance", **shared}


@pytest.mark.parametrize("data", GOLDEN_VALUES)
def test_values_and_gradients_of_the_released_code(data):
    arrays = np.load(GOLDEN / f"{data}.npz")
    labels, logits = arrays["labels"], arrays["logits"]
    checked = 0
    for key, expected in GOLDEN_VALUES[data].items():
        function, options = golden_call(key)
        value, gradient = value_and_gradient(
            function, labels, logits, from_logits=True, **options
        )
        np.testing.assert_allclose(value, expected, rtol=3e-6, err_msg=key)
        name = "grad_" + key.replace("/", "__")
        if name in arrays:
            reference = arrays[name]
            np.testing.assert_allclose(
                gradient,
                reference,
                atol=2e-5 * np.abs(reference).max(),
                err_msg=key,
            )
            checked += 1
    assert checked >= 4


@pytest.mark.parametrize(("name", "options"), VARIANTS)
@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    num_examples=st.integers(1, 40),
    num_classes=st.sampled_from([2, 3, 10]),
    scale=st.sampled_from([0.3, 2.0, 8.0]),
    seed=st.integers(0, 10_000),
)
def test_equals_the_formula(
    name, options, num_examples, num_classes, scale, seed
):
    labels, logits = batch(num_examples, num_classes, seed, scale)
    function, reference = ALL[name]
    probs = naive.softmax(logits)
    expected = reference(labels, probs, **options)
    tolerance = {"rtol": 2e-4, "atol": 2e-6}
    np.testing.assert_allclose(
        function(labels, logits, from_logits=True, **options),
        expected,
        **tolerance,
    )
    # The logarithm of a probability below 1e-7 is not taken, as in Keras.
    expected = reference(labels, np.maximum(probs, 1e-7), **options)
    np.testing.assert_allclose(
        function(labels, probs.astype("float32"), **options),
        expected,
        **tolerance,
    )


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_gradient_equals_finite_differences(name, options):
    labels, logits = batch(9, 4, seed=3)
    function, reference = ALL[name]
    _, gradient = value_and_gradient(
        function, labels, logits, from_logits=True, **options
    )
    expected = naive.finite_difference(
        lambda x: np.sum(reference(labels, naive.softmax(x), **options)),
        logits,
    )
    np.testing.assert_allclose(
        gradient, expected, atol=2e-4 * np.abs(expected).max()
    )


def edge_cases():
    for num_classes in (2, 10, 1000):
        rng = np.random.default_rng(num_classes)
        labels = rng.integers(0, num_classes, 6)
        one_hot = np.eye(num_classes)[labels]
        random = rng.normal(0, 3, (6, num_classes))
        yield f"uniform-{num_classes}", labels, np.zeros((6, num_classes))
        yield f"all_correct-{num_classes}", labels, random + 20 * one_hot
        yield f"all_wrong-{num_classes}", labels, random - 20 * one_hot
        yield f"saturated-{num_classes}", labels, 1e4 * one_hot
        yield f"saturated_wrong-{num_classes}", labels, -1e4 * one_hot
        yield f"minus_1e30-{num_classes}", labels, -1e30 * (1 - one_hot)
        yield f"minus_1e30_wrong-{num_classes}", labels, -1e30 * one_hot
        yield f"single-{num_classes}", labels[:1], random[:1]
        yield f"ties-{num_classes}", labels, random[[0, 0, 0, 1, 1, 1]]


EDGES = {name: (labels, logits) for name, labels, logits in edge_cases()}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_finite_at_the_edges(edge, dtype):
    labels, logits = EDGES[edge]
    for name in NAMES:
        loss = ct.losses.get(name, from_logits=True)
        y_pred = tf.cast(tf.constant(logits, "float32"), dtype)
        value, gradient = value_and_gradient(loss.call, labels, y_pred)
        assert value.dtype == tf.float32
        assert np.isfinite(value).all(), name
        assert np.isfinite(tf.cast(gradient, "float32")).all(), name

        probs = tf.cast(tf.nn.softmax(tf.constant(logits, "float32")), dtype)
        loss = ct.losses.get(name)
        value, gradient = value_and_gradient(loss.call, labels, probs)
        assert np.isfinite(value).all(), name
        assert np.isfinite(tf.cast(gradient, "float32")).all(), name


@pytest.mark.parametrize("name", NAMES)
def test_labels_may_be_ids_one_hot_or_a_column(name):
    labels, logits = batch(20, 5)
    loss = ct.losses.get(name, from_logits=True)
    expected = loss(labels, logits)
    one_hot = np.eye(5, dtype="float32")[labels]
    np.testing.assert_allclose(loss(one_hot, logits), expected, rtol=1e-6)
    np.testing.assert_allclose(loss(labels[:, None], logits), expected)
    smoothed = 0.9 * one_hot + 0.02
    assert np.isfinite(loss(smoothed, logits))


# The marginal error compares whole label distributions.
@pytest.mark.parametrize("name", sorted(SECONDARY.keys() - {"sb_marginal_ece"}))
def test_soft_labels_count_as_their_most_probable_class(name):
    labels, logits = batch(20, 5)
    loss = ct.losses.get(name, from_logits=True)
    smoothed = 0.9 * np.eye(5, dtype="float32")[labels] + 0.02
    np.testing.assert_allclose(loss(smoothed, logits), loss(labels, logits))


@pytest.mark.parametrize("name", SECONDARY)
def test_weights_count_inside_the_bins(name):
    labels, logits = batch(12, 4)
    weights = np.random.default_rng(1).integers(0, 4, 12).astype("float64")
    function, reference = SECONDARY[name]
    value = function(labels, logits, from_logits=True, sample_weight=weights)
    expected = reference(labels, naive.softmax(logits), weights=weights)
    np.testing.assert_allclose(value, expected, rtol=1e-4)
    # A weight of 2 is the example twice; a weight of 0 leaves it out.
    repeated = np.repeat(np.arange(12), weights.astype(int))
    np.testing.assert_allclose(
        value,
        function(labels[repeated], logits[repeated], from_logits=True),
        rtol=1e-5,
    )


@pytest.mark.parametrize("name", SECONDARY)
def test_rows_of_weight_0_may_hold_anything(name):
    labels, logits = batch(8, 4)
    weights = np.array([1, 1, 0, 1, 0, 1, 1, 1], "float32")
    garbage = logits.copy()
    garbage[weights == 0] = np.nan
    spoilt = np.where(weights == 0, -1, labels)
    loss = ct.losses.get(name, from_logits=True)
    kept = weights == 1
    expected, clean = value_and_gradient(loss, labels[kept], logits[kept])
    value, gradient = value_and_gradient(
        loss, spoilt, garbage, sample_weight=weights
    )
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    np.testing.assert_allclose(gradient.numpy()[kept], clean, atol=1e-6)
    assert (gradient.numpy()[~kept] == 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_round_trip_and_reductions(name):
    labels, logits = batch(10, 3)
    loss = ct.losses.get(name, from_logits=True)
    config = json.loads(json.dumps(keras.losses.serialize(loss)))
    again = keras.losses.deserialize(config)
    assert again.get_config() == loss.get_config()
    value = float(loss(labels, logits))
    np.testing.assert_allclose(again(labels, logits), value)
    each = ct.losses.get(name, from_logits=True, reduction=None)
    assert (
        each(labels, logits).shape == loss.call(labels, logits).shape == (10,)
    )
    np.testing.assert_allclose(np.mean(each(labels, logits)), value, rtol=1e-6)
    total = ct.losses.get(name, from_logits=True, reduction="sum")
    np.testing.assert_allclose(total(labels, logits), 10 * value, rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_invalid_labels_are_errors_or_nan_but_never_a_class(name):
    labels, logits = batch(6, 4)
    loss = ct.losses.get(name, from_logits=True)
    for invalid in (-1, 4, 1.5):
        spoilt = labels.astype("float32")
        spoilt[2] = invalid
        with pytest.raises(ValueError, match=r"y_true\[2\]"):
            loss(spoilt, logits)
        for jit_compile in (False, True):
            compiled = tf.function(loss, jit_compile=jit_compile)
            assert np.isnan(compiled(tf.constant(spoilt), logits))
    missing = np.eye(4, dtype="float32")[labels]
    missing[1] = 0
    with pytest.raises(ValueError, match=r"y_true\[1\]"):
        loss(missing, logits)
    assert np.isnan(tf.function(loss)(missing, logits))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("labels", "predictions", "argument"),
    [
        ((4,), (4,), "y_pred"),
        ((4,), (4, 2, 3), "y_pred"),
        ((4,), (4, 1), "y_pred"),
        ((4, 5), (4, 3), "y_true"),
        ((4, 3, 1), (4, 3), "y_true"),
        ((), (4, 3), "y_true"),
        ((5,), (4, 3), "y_true"),
    ],
)
def test_wrong_shapes_are_named(name, labels, predictions, argument):
    loss = ct.losses.get(name, from_logits=True)
    with pytest.raises(ValueError, match=f"`{argument}`.*Received") as error:
        loss(np.zeros(labels), np.zeros(predictions, "float32"))
    assert str(predictions) in str(error.value)


@pytest.mark.parametrize("name", NAMES)
def test_undeclared_logits_are_noticed(name):
    labels, logits = batch(6, 4)
    with pytest.raises(ValueError, match="from_logits=True"):
        ct.losses.get(name)(labels, logits)


@pytest.mark.parametrize("name", NAMES)
def test_compiled_with_unknown_batch_size(name):
    labels, logits = batch(11, 4)
    loss = ct.losses.get(name, from_logits=True)
    signature = [
        tf.TensorSpec([None], "int64"),
        tf.TensorSpec([None, 4], "float32"),
    ]
    for jit_compile in (False, True):
        compiled = tf.function(loss, signature, jit_compile=jit_compile)
        np.testing.assert_allclose(
            compiled(labels, logits), loss(labels, logits), rtol=1e-5
        )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("jit_compile", [None, False, True])
def test_a_diverged_model_shows(name, jit_compile):
    labels, logits = batch(6, 4)
    logits[2, 1] = np.nan
    loss = ct.losses.get(name, from_logits=True)
    if jit_compile is not None:
        loss = tf.function(loss, jit_compile=jit_compile)
    assert np.isnan(loss(labels, logits))
