"""What every loss must do: formulas, gradients, edges, precisions, errors."""

import functools
import inspect
import json
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import caltrain_tf as ct
from tests.losses import naive
from tests.losses.cases import (
    NAMES,
    OF_LOGITS,
    PRIMARY,
    SECONDARY,
    VARIANTS,
    WITH_FIXED_FACTOR,
    batch,
    get,
    value_and_gradient,
)

ALL = {**PRIMARY, **SECONDARY}
GOLDEN = pathlib.Path(__file__).parent / "golden"
GOLDEN_VALUES = json.loads((GOLDEN / "values.json").read_text())["values"]
PUBLISHED_VALUES = json.loads((GOLDEN / "published.json").read_text())["values"]


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
        temperature = 1 / (np.log(float(options["decay"])) * num_bins**2)
    else:
        temperature = options["temp"]
    shared = {"num_bins": num_bins, "temperature": float(temperature)}
    if kind == "sb_ece_l2":
        return ct.losses.sb_ece, {"binning": "bin", **shared}
    return ct.losses.sb_ece, {"root": False, "lower": "chance", **shared}


def check_gradient(gradient, stored, name):
    """Compares with a stored gradient, if there is one."""
    if name not in stored:
        return 0
    np.testing.assert_allclose(
        gradient,
        stored[name],
        # 1e-5 of the largest was seen.
        atol=1e-4 * np.abs(stored[name]).max(),
        err_msg=name,
    )
    return 1


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
        # Both in float32: 1e-6 was seen, 8e-6 of the largest gradient. Another
        # floor or smoothing shows in the third digit.
        np.testing.assert_allclose(value, expected, rtol=2e-5, err_msg=key)
        name = "grad_" + key.replace("/", "__")
        checked += check_gradient(gradient, arrays, name)
    assert checked >= 4


@pytest.mark.parametrize("data", PUBLISHED_VALUES)
def test_values_and_gradients_of_the_authors_of_later_losses(data):
    arrays = np.load(GOLDEN / f"{data}.npz")
    gradients = np.load(GOLDEN / "published_gradients.npz")
    for key, expected in PUBLISHED_VALUES[data].items():
        name, *options = key.split("/")
        options = dict(option.split("=") for option in options)
        value, gradient = value_and_gradient(
            lambda y, z, f=ALL[name][0], **o: tf.reduce_mean(f(y, z, **o)),
            arrays["labels"],
            arrays["logits"],
            from_logits=True,
            **{option: float(text) for option, text in options.items()},
        )
        # Theirs in float64: 5e-7 was seen over a hundred batches, and 1e-5 of
        # the largest gradient.
        np.testing.assert_allclose(
            value, expected, rtol=5e-6, atol=5e-7, err_msg=key
        )
        name = f"{data}/{key}".replace("/", "__")
        check_gradient(gradient, gradients, name)


@pytest.mark.parametrize(("name", "options"), VARIANTS)
@settings(max_examples=4, deadline=None, derandomize=True)
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
    expected = reference(
        labels, logits if name in OF_LOGITS else probs, **options
    )
    tolerance = {"rtol": 2e-4, "atol": 2e-6}
    np.testing.assert_allclose(
        function(labels, logits, from_logits=True, **options),
        expected,
        **tolerance,
    )
    if name in OF_LOGITS:
        return
    # The logarithm of a probability below 1e-7 is not taken, as in Keras.
    probs = probs.astype("float32")
    smallest = np.maximum(probs.astype("float64"), 1e-7)
    expected = reference(labels, smallest, **options)
    np.testing.assert_allclose(
        function(labels, probs, **options),
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
    given = (lambda x: x) if name in OF_LOGITS else naive.softmax
    if name in WITH_FIXED_FACTOR:
        options = {**options, "fixed": given(logits)}
    expected = naive.finite_difference(
        lambda x: np.sum(reference(labels, given(x), **options)), logits
    )
    np.testing.assert_allclose(
        gradient, expected, atol=5e-4 * np.abs(expected).max()
    )


def edge_cases(num_classes):
    rng = np.random.default_rng(num_classes)
    labels = rng.integers(0, num_classes, 6)
    one_hot = np.eye(num_classes)[labels]
    random = rng.normal(0, 3, (6, num_classes))
    yield "uniform", labels, np.zeros((6, num_classes))
    yield "all correct", labels, random + 20 * one_hot
    yield "all wrong", labels, random - 20 * one_hot
    yield "saturated", labels, 1e4 * one_hot
    yield "saturated and wrong", labels, -1e4 * one_hot
    yield "-1e30", labels, -1e30 * (1 - one_hot)
    yield "-1e30 and wrong", labels, -1e30 * one_hot
    yield "single", labels[:1], random[:1]
    yield "ties", labels, random[[0, 0, 0, 1, 1, 1]]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("num_classes", "dtype"),
    [(2, "float32"), (1000, "float32"), (10, "bfloat16"), (10, "float16")],
)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_finite_at_the_edges(name, num_classes, dtype):
    for edge, labels, logits in edge_cases(num_classes):
        logits = tf.constant(logits, "float32")
        for from_logits in (True,) if name in OF_LOGITS else (True, False):
            y_pred = logits if from_logits else tf.nn.softmax(logits)
            loss = get(name, from_logits=from_logits)
            value, gradient = value_and_gradient(
                loss, labels, tf.cast(y_pred, dtype)
            )
            assert value.dtype == tf.float32
            assert np.isfinite(value), edge
            assert gradient.dtype == dtype
            assert np.isfinite(tf.cast(gradient, "float32")).all(), edge


def test_small_float16_probabilities_have_finite_gradients():
    labels = np.array([0])
    probs = tf.constant([[1e-4, 0.3, 0.7]], "float16")
    for name in NAMES:
        if name not in OF_LOGITS:
            loss = get(name)
            value, gradient = value_and_gradient(loss, labels, probs)
            assert np.isfinite(value) and np.isfinite(gradient).all(), name


def test_overflow_of_a_scaled_float16_gradient_shows():
    labels, logits = batch(8, 4)
    logits = tf.cast(logits, "float16")
    for name in NAMES:
        loss = get(name, from_logits=True)
        _, gradient = value_and_gradient(
            lambda y, z, loss=loss: loss(y, z) * 2.0**26, labels, logits
        )
        assert np.isinf(gradient).any(), name


def test_a_soft_label_of_dual_focal_is_the_mean_of_its_classes():
    labels, logits = batch(20, 5)
    logits[3, 1:3] = logits[3, 0]  # Classes of equal probability.
    logits[4] = 0.0
    soft = np.random.default_rng(0).dirichlet(np.ones(5), 20).astype("float32")
    of_classes = np.stack(
        [
            ct.losses.dual_focal(np.full(20, k), logits, from_logits=True)
            for k in range(5)
        ],
        axis=1,
    )
    for function in (
        ct.losses.dual_focal,
        tf.function(ct.losses.dual_focal, jit_compile=True),
    ):
        value, gradient = value_and_gradient(
            function, soft, logits, from_logits=True
        )
        np.testing.assert_allclose(
            value, np.sum(soft * of_classes, 1), rtol=5e-6
        )
        assert np.isfinite(gradient).all()


def test_labels_may_be_ids_one_hot_or_a_column():
    labels, logits = batch(20, 5)
    one_hot = np.eye(5, dtype="float32")[labels]
    smoothed = 0.9 * one_hot + 0.02
    for name in NAMES:
        loss = get(name, from_logits=True)
        expected = loss(labels, logits)
        # Focal alone sums over all classes of a row, in another order.
        np.testing.assert_allclose(loss(one_hot, logits), expected, rtol=1e-6)
        np.testing.assert_array_equal(loss(labels[:, None], logits), expected)
        soft = loss(smoothed, logits)
        if name in ct.losses.PRIMARY or name in ("sb_marginal_ece", "mdca"):
            assert np.isfinite(soft) and soft != expected
        else:  # Counts as the most probable class.
            np.testing.assert_array_equal(soft, expected)


@pytest.mark.parametrize("name", SECONDARY)
def test_weights_count_inside_the_bins(name):
    labels, logits = batch(12, 4)
    weights = np.random.default_rng(1).integers(0, 4, 12).astype("float64")
    function, reference = SECONDARY[name]
    options = {"margin": 1.0} if name in OF_LOGITS else {}
    function = functools.partial(function, from_logits=True, **options)
    value = function(labels, logits, sample_weight=weights)
    given = logits if name in OF_LOGITS else naive.softmax(logits)
    expected = reference(labels, given, weights=weights, **options)
    np.testing.assert_allclose(value, expected, rtol=1e-4)
    if name == "esd":
        # It is a mean over triples of distinct examples: copies are none.
        return
    # A weight of 2 is the example twice; a weight of 0 leaves it out.
    repeated = np.repeat(np.arange(12), weights.astype(int))
    np.testing.assert_allclose(
        value,
        function(labels[repeated], logits[repeated]),
        rtol=1e-5,
    )


def test_the_scale_of_weights_does_not_matter():
    labels, logits = batch(30, 4)
    weights = np.random.default_rng(0).uniform(0, 3, 30)
    for loss in (
        ct.CompositeLoss("focal", "avuc_gs", from_logits=True),
        *(get(name, from_logits=True) for name in SECONDARY),
    ):
        value, gradient = value_and_gradient(
            loss, labels, logits, sample_weight=weights
        )
        # 30 float32 products of rounded weights: errors of about 1e-7.
        for scale in (1e-7, 1e9):
            scaled, scaled_gradient = value_and_gradient(
                loss, labels, logits, sample_weight=scale * weights
            )
            np.testing.assert_allclose(scaled, value, rtol=5e-6)
            np.testing.assert_allclose(
                scaled_gradient, gradient, atol=1e-5 * np.abs(gradient).max()
            )


def test_no_examples_are_no_loss():
    empty = tf.zeros((0, 4)), tf.zeros((0,), "int64")
    for name in NAMES:
        loss = get(name, from_logits=True)
        value, gradient = value_and_gradient(loss, empty[1], empty[0])
        assert float(value) == 0 and gradient.shape == (0, 4)
        assert loss.call(empty[1], empty[0]).shape == (0,)
        assert float(loss([1, 2], np.ones((2, 4)), sample_weight=[0, 0])) == 0
    loss = ct.CompositeLoss("nll", "sb_ece", from_logits=True)
    assert float(loss(empty[1], empty[0])) == 0


@pytest.mark.parametrize("name", NAMES)
def test_round_trip_and_reductions(name):
    labels, logits = batch(10, 3)
    loss = get(name, from_logits=True)
    config = json.loads(json.dumps(keras.losses.serialize(loss)))
    again = keras.losses.deserialize(config)
    assert again.get_config() == loss.get_config()
    assert float(again(labels, logits)) == float(loss(labels, logits))
    weights = np.array([1, 0, 2, 1, 1, 0, 1, 1, 3, 1], "float32")
    values, keras_weight = loss.call(labels, logits), weights
    if name in ct.losses.SECONDARY:
        # A copy for each example that counts, and means are means.
        values = loss(labels, logits, weights) * np.ones(10, "float32")
        keras_weight = (weights > 0).astype("float32")
    for reduction in (
        "none",
        "sum",
        "sum_over_batch_size",
        "mean_with_sample_weight",
    ):
        reduced = get(name, from_logits=True, reduction=reduction)
        is_mean = reduction not in ("none", "sum")
        # Keras' own reductions are the reference.
        expected = Values(values, reduction)(
            labels,
            logits,
            None if is_mean and name in ct.losses.SECONDARY else keras_weight,
        )
        np.testing.assert_allclose(
            reduced(labels, logits, weights), expected, rtol=1e-6
        )


class Values(keras.losses.Loss):
    """Given values, reduced as Keras reduces."""

    def __init__(self, values, reduction):
        super().__init__(reduction=reduction)
        self.values = values

    def call(self, y_true, y_pred):
        return self.values


@tf.function(jit_compile=True)
def compiled_by_xla(labels, logits):
    return [get(name, from_logits=True)(labels, logits) for name in NAMES]


def in_a_graph(*label_shape):
    return tf.function(
        compiled_by_xla.python_function,
        [
            tf.TensorSpec([None, *label_shape], "float32"),
            tf.TensorSpec([None, 4], "float32"),
        ],
    )


of_ids = in_a_graph()
of_one_hot = in_a_graph(4)


def test_compiled_they_are_the_same():
    ids, logits = batch(11, 4)
    ids = ids.astype("float32")
    one_hot = np.eye(4, dtype="float32")[ids.astype(int)]
    for function, labels in (
        (compiled_by_xla, ids),
        (of_ids, ids),
        (of_one_hot, one_hot),
    ):
        expected = compiled_by_xla.python_function(labels, logits)
        # XLA sums in another order: errors of 2e-7.
        np.testing.assert_allclose(
            function(labels, logits), expected, rtol=2e-5, atol=2e-6
        )
    for graph, labels in ((of_ids, ids), (of_one_hot, one_hot)):
        np.testing.assert_array_equal(graph(labels[:0], logits[:0]), 0)


def test_a_diverged_model_shows():
    labels, logits = batch(11, 4)
    logits[2, 1] = np.nan
    labels = labels.astype("float32")
    for function in (
        compiled_by_xla.python_function,
        compiled_by_xla,
        of_ids,
    ):
        assert np.isnan(function(labels, logits)).all()


def test_invalid_labels_never_count_as_a_class():
    labels, logits = batch(11, 4)
    for invalid in (-1, 4, 1.5):
        spoilt = labels.astype("float32")
        spoilt[2] = invalid
        assert np.isnan(compiled_by_xla(spoilt, logits)).all()
        with pytest.raises(tf.errors.InvalidArgumentError, match="class ids"):
            of_ids(spoilt, logits)
        for name in NAMES:
            with pytest.raises(ValueError, match=r"y_true\[2\]"):
                get(name, from_logits=True)(spoilt, logits)


def test_help_says_what_a_loss_is():
    for name in NAMES:
        loss = get(name)
        function, options = loss.function, loss.options
        text = inspect.getdoc(function)
        for option in options:
            assert f"  {option}: " in text
            assert option in inspect.signature(function).parameters
            assert option in inspect.signature(type(loss)).parameters
        assert f"`{function.__name__}`" in inspect.getdoc(type(loss))
    with pytest.raises(TypeError, match="SBECE.*bins"):
        ct.losses.SBECE(bins=3)


def test_options_may_be_numpy_scalars():
    labels, logits = batch(20, 4)
    for name in NAMES:
        loss = get(name, from_logits=True)
        options = {
            key: np.asarray(value)[()]
            for key, value in loss.options.items()
            if isinstance(value, (bool, int, float))
        }
        again = get(
            name, from_logits=np.True_, ignore_class=np.int8(-1), **options
        )
        assert again(labels, logits) == loss(labels, logits)
        json.dumps(keras.losses.serialize(again))
    loss = ct.CompositeLoss("nll", beta=np.float32(0.5), from_logits=np.True_)
    json.dumps(keras.losses.serialize(loss))
