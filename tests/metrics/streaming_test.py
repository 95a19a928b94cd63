"""Streaming metrics: what holds for all of them, then each with its options."""

import inspect
import json
import math
import re

import hypothesis
import hypothesis.strategies as st
import keras
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from caltrain_tf import metrics
from caltrain_tf.metrics import binned, streaming
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
# Ten times the largest error seen; a mistake in one of 100 examples changes
# 1e-3 and more. Bins of equal mass are made of whole cells, so that one or two
# of the 13 examples of a bin may be in its neighbour: up to 2e-2 of 200.
# `test_equals_the_exact_metric_where_no_cell_is_shared` has no such tolerance.
NEAR = dict.fromkeys(PAIRS, 3e-5) | {
    "ece": 2e-2,
    "marginal_ece": 5e-3,
    "ks_error": 1e-3,
}
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
    logits, labels = sample(300, 5)
    assert stream(kind(from_logits=True), labels, logits) == pytest.approx(
        exact(logits, labels, from_logits=True), abs=NEAR[name]
    )


@all_metrics
def test_weights(name):
    kind, _ = PAIRS[name]
    probs, labels = probabilities(300, 4)
    generator = np.random.default_rng(0)
    # Whole weights are repetitions, and the scale does not matter.
    weight = generator.integers(0, 4, 300)
    repeated = np.repeat(labels, weight), np.repeat(probs, weight, 0)
    expected = stream(kind(), *repeated)
    for scale in (1.0, 1e-3):
        weights = (scale * weight).astype("float32")
        value = stream(kind(), labels, probs, sample_weight=weights)
        assert value == pytest.approx(expected, abs=1e-5)
    # Examples of weight 0 and of the ignored class leave no trace.
    padded = np.concatenate([probs, np.full((50, 4), np.nan, "float32")])
    padded_labels = np.concatenate([labels, np.full(50, -1)])
    weights = np.repeat([1.0, 0.0], [300, 50]).astype("float32")
    expected = stream(kind(), labels, probs)
    value = stream(kind(), padded_labels, padded, sample_weight=weights)
    assert value == pytest.approx(expected, abs=1e-6)
    value = stream(kind(ignore_class=-1), padded_labels, padded)
    assert value == pytest.approx(expected, abs=1e-6)


@all_metrics
def test_reset_merge_and_empty_batches(name):
    kind, _ = PAIRS[name]
    probs, labels = probabilities(300, 4)
    metric = kind()
    metric.update_state(labels[:0], probs[:0])
    assert float(metric.result()) == 0
    whole = stream(metric, labels, probs)
    metric.update_state(labels[:0], probs[:0])
    assert float(metric.result()) == whole
    metric.reset_state()
    assert float(metric.result()) == 0
    for i in range(3):
        part = kind()
        stream(part, labels[i::3], probs[i::3])
        # One that saw nothing adds nothing.
        metric.merge_state([part, kind()])
    assert float(metric.result()) == pytest.approx(whole, abs=1e-6)
    with pytest.raises(ValueError, match="`metrics` must hold"):
        metric.merge_state([kind(from_logits=True)])


@all_metrics
def test_invalid_labels_and_nan_show(name):
    logits, labels = sample(10, 4)
    metric = PAIRS[name][0](from_logits=True)
    with pytest.raises(ValueError, match=r"y_true\[7\]=4"):
        metric.update_state(np.where(np.arange(10) == 7, 4, labels), logits)
    logits[3] = np.nan
    metric.update_state(labels, logits)
    assert np.isnan(float(metric.result()))


@all_metrics
def test_config(name):
    kind, _ = PAIRS[name]
    assert kind().name == name
    metric = kind(from_logits=True, name="mine")
    config = keras.saving.serialize_keras_object(metric)
    again = keras.saving.deserialize_keras_object(config)
    assert type(again) is kind
    assert again.get_config() == metric.get_config()
    # What `help` shows has every argument.
    for parameter in inspect.signature(kind).parameters:
        pattern = rf"\n    ([\w, ]+, )?{parameter}(, [\w, ]+)?: "
        assert re.search(pattern, inspect.getdoc(kind)), parameter


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
    # The tolerance of the uncertainty is that of sums of 1000 rounded terms.
    assert stream(kind(), labels, probs) == pytest.approx(
        exact(probs, labels), abs=max(NEAR[name], 5e-4)
    )


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


# Each option of the errors in bins.

# Confidences k / 64 lie in cells of their own, so that bins of whole cells are
# the bins of the exact metric.
NORMS = st.sampled_from([1, 2, math.inf])
BINNINGS = st.sampled_from(binned.BINNINGS)


@st.composite
def lattice(draw):
    """Probabilities, labels, weights, and where one batch ends.

    Equal confidences have equal weights: the smallest weight, which counts as
    one example in ranks, is not known if it shares its cell with larger ones.
    """
    size = draw(st.integers(1, 60))
    seed = draw(st.integers(0, 2**32 - 1))
    generator = np.random.default_rng(seed)
    first = generator.integers(0, 65, size).astype("float32") / 64
    probs = np.stack([first, 1 - first], axis=1)
    of_confidence = draw(
        st.sampled_from(
            [
                np.ones(65),
                np.full(65, 2.0),
                np.full(65, 0.3),
                generator.integers(1, 5, 65).astype(float),
                1e-3 * generator.integers(1, 3, 65),
            ]
        )
    )
    weight = of_confidence[(64 * probs.max(axis=1)).astype(int)]
    labels = generator.integers(0, 2, size)
    return probs, labels, weight.astype("float32"), draw(st.integers(0, size))


def in_two_batches(metric, data):
    probs, labels, weight, split = data
    for rows in (slice(split), slice(split, None)):
        metric.update_state(labels[rows], probs[rows], weight[rows])
    return float(metric.result())


@hypothesis.given(lattice(), st.data())
@hypothesis.settings(deadline=None, max_examples=60)
def test_equals_the_exact_metric_where_no_cell_is_shared(data, draws):
    probs, labels, weight, _ = data
    options = {
        "num_bins": draws.draw(st.sampled_from([1, 2, 7, 15, 40])),
        "norm": draws.draw(NORMS),
        "binning": draws.draw(BINNINGS),
    }
    if options["norm"] == 2:
        options["debias"] = draws.draw(st.booleans())
    value = in_two_batches(metrics.ExpectedCalibrationError(**options), data)
    expected = metrics.calibration_error(
        probs, labels, sample_weight=weight, **options
    )
    # Squares, because float32 rounds a difference of 1e-7 to a root of 3e-4.
    power = 2 if options["norm"] == 2 else 1
    assert value**power == pytest.approx(expected**power, abs=3e-6)


@hypothesis.given(
    lattice(), NORMS, BINNINGS, st.sampled_from(binned.REDUCTIONS)
)
@hypothesis.settings(deadline=None, max_examples=30)
def test_marginal_error_where_no_cell_is_shared(data, norm, binning, reduce):
    probs, labels, weight, _ = data
    options = {"norm": norm, "binning": binning, "reduce": reduce}
    value = in_two_batches(metrics.MarginalCalibrationError(**options), data)
    expected = metrics.marginal_calibration_error(
        probs, labels, sample_weight=weight, **options
    )
    power = 2 if norm == 2 else 1
    assert value**power == pytest.approx(expected**power, abs=3e-6)


@hypothesis.given(lattice())
@hypothesis.settings(deadline=None, max_examples=20)
def test_ks_error_where_no_cell_is_shared(data):
    probs, labels, weight, _ = data
    expected = metrics.ks_error(probs, labels, sample_weight=weight)
    value = in_two_batches(metrics.KSError(), data)
    assert value == pytest.approx(expected, abs=3e-6)


def test_one_example_of_weight_two_has_no_debiased_error():
    metric = metrics.ExpectedCalibrationError(debias=True)
    metric.update_state([1], [[0.7, 0.3]], [2.0])
    assert float(metric.result()) == 0
    exact = metrics.calibration_error(
        [[0.7, 0.3]], [1], debias=True, sample_weight=[2.0]
    )
    assert exact == 0


def test_ranks_between_two_examples_are_rounded_as_in_the_exact_metric():
    # 60 examples in 40 bins: every second bin begins at half an example.
    confidence = np.random.default_rng(57).integers(32, 64, 60) / 64
    probs = np.stack([1 - confidence, confidence], axis=1).astype("float32")
    labels = np.random.default_rng(1).integers(0, 2, 60)
    metric = metrics.ExpectedCalibrationError(num_bins=40)
    expected = metrics.calibration_error(probs, labels, num_bins=40)
    assert stream(metric, labels, probs) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("case", ["calibrated_10", "saturated", "tied"])
def test_equal_width_is_exact(case):
    probs, labels = CASES[case]
    for norm in binned.NORMS:
        options = {"norm": norm, "binning": "equal_width"}
        metric = metrics.ExpectedCalibrationError(**options)
        expected = metrics.calibration_error(probs, labels, **options)
        value = stream(metric, labels, probs)
        assert value == pytest.approx(expected, abs=1e-6), options


@pytest.mark.parametrize(
    "shape",
    [
        {"num_classes": 10, "scale": 1.2},
        {"num_classes": 2, "scale": 1.5},
        {"num_classes": 10, "scale": 3.0, "temperature": 0.2},
        # Nine of ten confidences are above 0.999.
        {"num_classes": 10, "scale": 15.0, "temperature": 0.1},
    ],
)
@pytest.mark.parametrize("options", [{}, {"norm": 1}])
def test_equal_mass_is_near(shape, options):
    probs, labels = probabilities(10_000, **shape)
    metric = metrics.ExpectedCalibrationError(**options)
    expected = metrics.calibration_error(probs, labels, **options)
    # On outputs of real networks 5e-4; calibrated ones are the hardest.
    assert stream(metric, labels, probs) == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize("binning", ["equal_mass", "equal_width"])
def test_does_not_drift_over_a_hundred_million(binning):
    probs, labels = probabilities(10_000, 10, scale=3.0, temperature=0.5)
    metric = metrics.ExpectedCalibrationError(binning=binning)
    metric.update_state(labels, probs)
    for _ in range(14):
        metric.merge_state([metric])
    update = tf.function(metric.update_state, jit_compile=True, autograph=False)
    batch = tf.constant(labels[:500]), tf.constant(probs[:500])
    for _ in range(100):
        update(*batch)
    mass = metric.sums.numpy().astype(float) - metric.lost.numpy()
    assert mass[..., 0].sum() == 10_000 * 2**14 + 100 * 500
    # Repeated that often, the bins of equal mass are nearly the same, and the
    # batches that came last are 3e-4 of all.
    expected = metrics.calibration_error(probs, labels, binning=binning)
    assert float(metric.result()) == pytest.approx(expected, abs=5e-4)


def test_a_stream_of_one_value_does_not_drift():
    # A plain float32 sum of 0.69 is off by percents after a few million.
    probs = np.tile(np.float32([0.31, 0.69]), (10_000, 1))
    labels = np.zeros(10_000, int)
    metric = metrics.ExpectedCalibrationError(binning="equal_width")
    update = tf.function(metric.update_state, autograph=False)
    batch = tf.constant(labels), tf.constant(probs)
    for _ in range(200):
        update(*batch)
    assert float(metric.result()) == pytest.approx(0.69, abs=1e-6)


def test_the_number_of_classes_cannot_change():
    metric = metrics.MarginalCalibrationError(num_classes=3)
    probs, labels = probabilities(10, 4)
    with pytest.raises(ValueError, match="must have 3 classes.*4 classes"):
        metric.update_state(labels, probs)


@pytest.mark.parametrize(
    "options",
    [
        {"binning": "bin"},
        {"binning": "bin", "root": False},
        {"binning": "label", "root": False},
        {"num_bins": 5, "temperature": 0.1},
        {"temperature": 1e-5},
    ],
)
def test_soft_bins_are_the_loss_of_all_examples(options):
    for case in ("calibrated_10", "saturated", "tied", "one_example"):
        probs, labels = CASES[case]
        value = stream(ct.metrics.SoftBinnedECE(**options), labels, probs)
        expected = float(ct.losses.sb_ece(labels, probs, **options))
        # Ten times the largest error seen; a bin more or less changes 1e-2.
        assert value == pytest.approx(expected, abs=2e-5), case


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (metrics.ExpectedCalibrationError, {"norm": 3}, "norm=3"),
        (metrics.SoftBinnedECE, {"binning": "soft"}, "binning='soft'"),
        (metrics.SoftBinnedECE, {"temperature": 0}, "temperature=0"),
        (metrics.SoftBinnedECE, {"num_bins": 0}, "num_bins=0"),
    ],
)
def test_bad_options(kind, options, message):
    with pytest.raises(ValueError, match=f"Received: {message}"):
        kind(**options)


@pytest.mark.parametrize("num_bins", [1, 2, 5, 15, 30])
def test_no_even_cell_reaches_over_an_edge(num_bins):
    exact = np.arange(1, num_bins) / num_bins
    edges = exact.astype("float32")
    below = np.nextafter(edges, np.float32(0))
    values = np.concatenate([np.linspace(0, 1, 1001, dtype="f4"), edges, below])
    cells = keras.ops.convert_to_numpy(streaming.even_cells(values, num_bins))
    bins = np.searchsorted(exact, values.astype(float), side="right")
    np.testing.assert_array_equal(cells, bins)
