"""Shapes, weights and batches: all are the two-dimensional case."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import caltrain_tf as ct
from tests.posthoc.data import calibrated, mean_nll, softmax

# Of the few examples of these tests.
pytestmark = pytest.mark.filterwarnings("ignore:.*cross-validated NLL")

CALIBRATORS = {
    "ts": (ct.posthoc.TemperatureScaling, {}),
    "ts_sb_ece": (
        ct.posthoc.TemperatureScaling,
        {"objective": "sb_ece", "likelihood_weight": 0.1},
    ),
    "ensemble": (ct.posthoc.EnsembleTemperatureScaling, {}),
    "vector": (ct.posthoc.VectorScaling, {"penalty": 0.1}),
    "matrix": (ct.posthoc.MatrixScaling, {"penalty": 0.1}),
    "dirichlet": (
        ct.posthoc.DirichletCalibration,
        {"off_diagonal": 0.1, "intercept": 0.1},
    ),
    "structured_vector": (
        ct.posthoc.StructuredVectorScaling,
        {"strength": 1.0},
    ),
    "structured_matrix": (
        ct.posthoc.StructuredMatrixScaling,
        {"strength": 1.0, "centred": False},
    ),
    "platt": (ct.posthoc.PlattScaling, {}),
    "beta": (ct.posthoc.BetaCalibration, {}),
    "isotonic": (ct.posthoc.IsotonicCalibration, {}),
}
LOGITS, LABELS = calibrated(120, 4)
LOGITS *= 2
BINARY = LOGITS[:, 0] - LOGITS[:, 1]
PAIRS = np.stack([0 * BINARY, BINARY], axis=1)
BITS = (BINARY + np.random.default_rng(0).logistic(size=120) > 0).astype(int)


@pytest.fixture(params=CALIBRATORS)
def make(request):
    kind, options = CALIBRATORS[request.param]
    return lambda **more: kind(**options, **more)


def assert_same(one, other):
    for name in one.fitted_names:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_pixels_and_tokens(make):
    expected = make().fit(LOGITS, LABELS)
    for shape in ((2, 3, 20), (4, 30)):
        images, labels = LOGITS.reshape(*shape, 4), LABELS.reshape(shape)
        for each in (labels, labels[..., None], np.eye(4)[labels]):
            found = make().fit(images, each)
            assert_same(found, expected)
        for method in ("transform", "predict_proba"):
            np.testing.assert_array_equal(
                getattr(found, method)(images),
                getattr(expected, method)(LOGITS).reshape(*shape, 4),
            )
        np.testing.assert_array_equal(
            found.predict(images), expected.predict(LOGITS).reshape(shape)
        )


def test_binary_logits_are_pairs(make):
    expected = make().fit(PAIRS, BITS)
    calibrated = expected.transform(PAIRS)
    logits = calibrated[:, 1] - calibrated[:, 0]
    probs = expected.predict_proba(PAIRS)[:, 1]
    for shape in ((120,), (120, 1), (4, 30, 1)):
        for labels in (BITS, BITS[:, None]):
            if len(shape) == 3:
                labels = labels.reshape(4, 30, *labels.shape[1:])
            found = make().fit(BINARY.reshape(shape), labels)
            assert_same(found, expected)
        np.testing.assert_array_equal(
            found.transform(BINARY.reshape(shape)), logits.reshape(shape)
        )
        np.testing.assert_allclose(
            found.predict_proba(BINARY.reshape(shape)),
            probs.reshape(shape),
            rtol=1e-12,
        )
        predicted = found.predict(BINARY.reshape(shape))
        assert predicted.shape == (shape[:-1] if shape[-1] == 1 else shape)
        np.testing.assert_array_equal(predicted.ravel(), logits > 0)


def test_binary_probabilities_for_logits_are_said_aloud():
    scaler = ct.posthoc.TemperatureScaling().fit(BINARY, BITS)
    probs = scaler.predict_proba(BINARY)
    with pytest.warns(UserWarning, match="look like probabilities"):
        scaler.fit(probs, BITS)
    # Which a single logit may be.
    scaler.transform([0.3])


def test_several_labels_are_binary_problems(make):
    expected = make().fit(PAIRS, BITS)
    found = make(multi_label=True)
    found.fit(BINARY.reshape(40, 3), BITS.reshape(40, 3))
    assert_same(found, expected)
    probs = found.predict_proba(BINARY.reshape(40, 3))
    np.testing.assert_allclose(
        probs.ravel(), expected.predict_proba(PAIRS)[:, 1], rtol=1e-12
    )
    assert found.predict(BINARY.reshape(40, 3)).shape == (40, 3)
    # Weights of examples count for all of their labels.
    weights = np.arange(40) % 3
    found.fit(BINARY.reshape(40, 3), BITS.reshape(40, 3), weights)
    expected.fit(PAIRS, BITS, np.repeat(weights, 3))
    assert_same(found, expected)


@pytest.mark.parametrize("ignore_class", [-1, 2])
def test_ignored_examples_count_nothing(make, ignore_class):
    if ignore_class == 2 and "Dirichlet" in repr(make()):
        pytest.skip("Nothing holds the diagonal of a class without examples.")
    rows = np.arange(120) % 5 == 1
    labels = np.where(rows, ignore_class, LABELS)
    rows = labels == ignore_class
    # Not even if they are no numbers.
    logits = np.where(rows[:, None], np.nan, LOGITS)
    found = make(ignore_class=ignore_class).fit(logits, labels)
    expected = make().fit(LOGITS[~rows], LABELS[~rows])
    # Sums of weighted rows are rounded otherwise.
    np.testing.assert_allclose(
        found.predict_proba(LOGITS), expected.predict_proba(LOGITS), rtol=1e-4
    )
    with pytest.raises(ValueError, match="must hold class ids.*ignore_class"):
        make(ignore_class=0).fit(LOGITS, np.eye(4)[LABELS])
    with pytest.raises(
        ValueError, match="`ignore_class` must leave an example"
    ):
        make(ignore_class=0).fit(LOGITS, 0 * LABELS)


def test_weights_are_repetitions_of_any_scale(make):
    weights = np.random.default_rng(1).integers(0, 4, 120)
    expected = make()
    if isinstance(expected, ct.posthoc.IsotonicCalibration):
        pytest.skip("its bounds, 1 / (N + 2), count the examples")
    if hasattr(expected, "strength"):
        # Of a penalty that falls with the number of rows, of which weights say
        # less than repetitions do.
        squares = np.sum(weights**2)
        expected.set_params(strength=squares / np.sum(weights))
    expected.fit(np.repeat(LOGITS, weights, axis=0), np.repeat(LABELS, weights))
    for scale in (1.0, 1e-7):
        found = make().fit(LOGITS, LABELS, sample_weight=scale * weights)
        # Seen 1e-6, from where an optimizer ends.
        np.testing.assert_allclose(
            found.predict_proba(LOGITS),
            expected.predict_proba(LOGITS),
            rtol=1e-4,
        )
    # Weights of the first axes.
    weights = weights[:30]
    tokens, labels = LOGITS.reshape(30, 4, 4), LABELS.reshape(30, 4)
    assert_same(
        make().fit(tokens, labels, weights),
        make().fit(LOGITS, LABELS, np.repeat(weights, 4)),
    )


def test_probabilities_are_their_logarithms(make):
    if isinstance(make(), ct.posthoc.IsotonicCalibration):
        pytest.skip("its lines are straight over what is given")
    probs = softmax(LOGITS)
    expected = make().fit(np.log(probs), LABELS)
    found = make(from_probs=True).fit(probs, LABELS)
    assert_same(found, expected)
    np.testing.assert_array_equal(
        found.transform(probs), expected.transform(np.log(probs))
    )
    p = 1 / (1 + np.exp(-BINARY))
    assert_same(
        make(from_probs=True).fit(p, BITS),
        make(from_probs=True).fit(np.stack([1 - p, p], axis=1), BITS),
    )
    with pytest.raises(ValueError, match=r"`logits` must hold probab.*\[0\]"):
        make(from_probs=True).fit(LOGITS, LABELS)


@pytest.mark.parametrize("make", ["ts", "matrix"], indirect=True)
def test_append_to_and_layers_take_every_shape(make):
    cases = [
        (make(), LOGITS.reshape(6, 20, 4), LABELS.reshape(6, 20)),
        (make(), BINARY[:, None], BITS),
        (
            make(multi_label=True),
            BINARY.reshape(40, 3),
            BITS.reshape(40, 3),
        ),
        (make(from_probs=True), softmax(LOGITS), LABELS),
        (
            make(from_probs=True, multi_label=True),
            1 / (1 + np.exp(-BINARY.reshape(40, 3))),
            BITS.reshape(40, 3),
        ),
    ]
    for calibrator, predictions, labels in cases:
        predictions = predictions.astype(np.float32)
        calibrator.fit(predictions, labels)
        inputs = keras.Input(predictions.shape[1:])
        model = keras.Model(inputs, keras.layers.Identity()(inputs))
        for probabilities, expected in (
            (False, calibrator.transform(predictions)),
            (True, calibrator.predict_proba(predictions)),
        ):
            extended = calibrator.append_to(model, probabilities)
            np.testing.assert_allclose(
                extended(predictions), expected, rtol=1e-4, atol=1e-4
            )
        # By default what the model itself returns.
        default = calibrator.append_to(model)(predictions)
        if not calibrator.from_probs:
            expected = calibrator.transform(predictions)
        np.testing.assert_allclose(default, expected, rtol=1e-4, atol=1e-4)


def test_a_forest_in_a_pipeline():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(600, 5))
    labels = (features[:, 0] + rng.normal(size=600) > 0).astype(int)
    forest = RandomForestClassifier(20, random_state=0)
    forest.fit(features[:300], labels[:300])
    assert (forest.predict_proba(features) == 0).any()
    pipeline = make_pipeline(
        FunctionTransformer(forest.predict_proba),
        ct.posthoc.TemperatureScaling(from_probs=True),
    )
    pipeline.fit(features[300:], labels[300:])
    np.testing.assert_array_equal(pipeline.classes_, [0, 1])
    logs = np.log(np.maximum(forest.predict_proba(features[300:]), 1e-12))
    probs = pipeline.predict_proba(features[300:])
    assert mean_nll(np.log(probs), labels[300:]) < mean_nll(logs, labels[300:])
    assert pipeline.score(features[300:], labels[300:]) > 0.6


def batches(size, logits=LOGITS, labels=LABELS):
    """A list of batches, which can be read several times."""
    return [
        (logits[i : i + size], labels[i : i + size])
        for i in range(0, len(labels), size)
    ]


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_a_stream_of_tokens_has_the_temperature_of_arrays(dtype):
    tokens, labels = calibrated(2000, 50)
    tokens = np.asarray(tf.cast(1.5 * tokens, dtype)).reshape(100, 20, 50)
    labels = labels.reshape(100, 20)
    expected = ct.posthoc.TemperatureScaling().fit(tokens, labels)
    found = ct.posthoc.TemperatureScaling().fit(batches(7, tokens, labels))
    # Seen 3e-8; a token more or less changes it by 1e-4.
    assert found.temperature_ == pytest.approx(expected.temperature_, rel=1e-6)


def test_a_stream_holds_two_batches_at_most():
    alive, most = [0], [0]

    class Batch(np.ndarray):
        def __array_finalize__(self, _):
            pass

        def __del__(self):
            if self.base is None:
                alive[0] -= 1

    class Batches:
        def __iter__(self):
            for logits, labels in batches(10):
                batch = np.ndarray.__new__(Batch, logits.shape)
                batch[:] = logits
                alive[0] += 1
                most[0] = max(most[0], alive[0])
                yield batch, labels
                del batch

    expected = ct.posthoc.TemperatureScaling().fit(LOGITS, LABELS)
    found = ct.posthoc.TemperatureScaling().fit(Batches())
    assert found.temperature_ == pytest.approx(expected.temperature_, rel=1e-7)
    assert 1 <= most[0] <= 2


def weighted_batches(weights, logits=LOGITS, labels=LABELS):
    return [
        (logits[i : i + 50], labels[i : i + 50], weights[i : i + 50])
        for i in range(0, 120, 50)
    ]


@pytest.mark.parametrize("objective", ["nll", "sb_ece", "hb_ece"])
def test_weighted_batches(objective):
    weights = np.random.default_rng(1).random(120)
    # A batch in which no example counts.
    weights[50:100] = 0.0
    expected = ct.posthoc.TemperatureScaling(objective)
    expected.fit(LOGITS, LABELS, weights)
    given = weighted_batches(weights)
    for batches in (given, tuple(given), lambda: iter(given)):
        found = ct.posthoc.TemperatureScaling(objective).fit(batches)
        assert found.temperature_ == pytest.approx(
            expected.temperature_, rel=1e-6
        )


def test_others_need_arrays(make):
    if isinstance(make(), ct.posthoc.TemperatureScaling):
        return
    dataset = tf.data.Dataset.from_tensor_slices((LOGITS, LABELS)).batch(50)
    with pytest.raises(ValueError, match="`logits` must be an array"):
        make().fit(dataset)
    with pytest.raises(ValueError, match="`l(ogits|abels)` must be"):
        make().fit(batches(50))


def dataset(*parts):
    return tf.data.Dataset.from_tensor_slices(parts).batch(50)


BAD_STREAMS = {
    "dataset of one part": (lambda: dataset(LOGITS), "batches. Received"),
    "no batch": (lambda: dataset(LOGITS, LABELS).take(0), "at least one batch"),
    "labels": (
        lambda: dataset(LOGITS, LABELS + 9),
        r"In batch 0: .*labels\[0\]=",
    ),
    "iterator": (lambda: iter(batches(50)), "several times"),
    "one part": (lambda: [(LOGITS,)], "batches. Received"),
    "dict": (lambda: [{"logits": LOGITS}], "batches. Received"),
    "empty": (lambda: [], "at least one batch"),
    "other classes": (
        lambda: [(LOGITS, LABELS), (LOGITS[:, :3], LABELS * 0)],
        r"same number of classes.*\[3, 4\]",
    ),
    "nan": (lambda: batches(50, LOGITS * np.nan), r"logits\[0\].*nan"),
}


@pytest.mark.parametrize("case", BAD_STREAMS)
def test_bad_streams(case):
    make, message = BAD_STREAMS[case]
    with pytest.raises(ValueError, match=message):
        ct.posthoc.TemperatureScaling().fit(make())


def test_batches_hold_their_labels_and_weights():
    fit = ct.posthoc.TemperatureScaling().fit
    for arguments in ((LABELS,), (None, np.ones(120))):
        with pytest.raises(ValueError, match="`logits` must be .* weights"):
            fit(dataset(LOGITS, LABELS), *arguments)
