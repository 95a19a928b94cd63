"""The front door: arrays and tensors of every shape and type."""

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from caltrain_tf import inputs
from tests.metrics import naive
from tests.metrics.cases import CASES, sample, softmax

PROBS = np.array([[0.9, 0.1, 0.0], [0.2, 0.3, 0.5]], "float32")
LABELS = np.array([0, 2])
LOGITS = np.random.default_rng(0).normal(0, 3, (50, 7)).astype("float32")
SOFTMAX = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)


class HasArray:
    def __array__(self, dtype=None, copy=None):
        return PROBS


def read(probs, labels=LABELS, **options):
    return inputs.read(probs, labels, **options).whole()


def test_reads_anything_array_like():
    for probs in (PROBS.tolist(), tf.constant(PROBS), HasArray()):
        np.testing.assert_array_equal(read(probs)[0].astype("f"), PROBS)
    for dtype in ("float32", "float64"):
        probs = PROBS.astype(dtype)
        assert np.shares_memory(read(probs)[0], probs)
    for dtype in ("float16", ml_dtypes.bfloat16, "int32"):
        probs = read(np.eye(3).astype(dtype), [0, 1, 2])[0]
        assert probs.dtype == np.float32
        np.testing.assert_array_equal(probs, np.eye(3))


@pytest.mark.parametrize(
    "labels",
    [
        [0.0, 2.0],
        [[0], [2]],
        [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]],
        np.array([0, 2], "uint8"),
        tf.constant([0, 2]),
    ],
)
def test_labels_become_ids(labels):
    assert read(PROBS, labels)[1].tolist() == [0, 2]


def bad(row, column, value):
    probs = PROBS.copy()
    probs[row, column] = value
    return probs


@pytest.mark.parametrize(
    ("probs", "message"),
    [
        (bad(1, 2, np.nan), r"`probs` .*probs\[1\] from nan"),
        (bad(0, 1, np.inf), r"`probs` .*probs\[0\] from 0 to inf"),
        (bad(1, 0, -0.2), r"in \[0, 1\].*probs\[1\] from -0.2 to 0.5"),
        (bad(1, 0, 0.23), r"sum to 1 .*probs\[1\].* summing to 1.03"),
        (PROBS[:0], r"probs.shape=\(0, 3\)"),
        (PROBS + 0j, "`probs` must hold real numbers.*dtype=complex64"),
        ([["a", "b"]], "`probs` must hold real numbers.*dtype=<U1"),
        ([[0.1, 0.9], [1.0]], "`probs` must be convertible"),
    ],
)
def test_bad_predictions(probs, message):
    with pytest.raises(ValueError, match=message):
        read(probs)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 3], r"`labels` .* 0 to 2. Received: labels\[1\]=3"),
        ([-1, 0], r"labels\[0\]=-1"),
        ([0, 0.5], r"labels\[1\]=0.5"),
        ([np.nan, 0], r"labels\[0\]=nan"),
        ([0, 1, 2], r"labels.shape=\(3,\)"),
        ([[1, 0], [0, 1]], r"labels.shape=\(2, 2\)"),
        ([[1, 0, 0], [0, 0, 0]], r"one-hot rows.*labels\[1\]=\[0, 0, 0\]"),
        ([[1, 0, 0], [0.1, 0.9, 0]], r"labels\[1\]=\[0.1, 0.9, 0.0\]"),
    ],
)
def test_bad_labels(labels, message):
    with pytest.raises(ValueError, match=message):
        read(PROBS, labels)


def test_bad_weights():
    with pytest.raises(ValueError, match=r"`sample_weight`.*\[1\]=inf"):
        read(PROBS, sample_weight=[1, np.inf])
    with pytest.raises(ValueError, match=r"sample_weight.shape=\(3,\)"):
        read(PROBS, sample_weight=[1, 2, 3])
    with pytest.raises(ValueError, match="leave an example that counts"):
        read(PROBS, sample_weight=[0, 0])


def test_logits_need_only_be_finite():
    logits = np.array([[1e3, -1e3], [3e38, 3e38]], "float32")
    options = {"from_logits": True, "name": "logits"}
    read(logits, [0, 1], **options)
    shifted = inputs.shift_logits(np.float32([[3e38, -3e38]]))
    assert shifted.tolist() == [[0.0, inputs.LOWEST_LOGIT]]
    logits[1, 0] = np.nan
    with pytest.raises(ValueError, match=r"`logits` .*logits\[1\] from nan"):
        read(logits, [0, 1], **options)


def test_rounding_is_not_an_error():
    probs = np.array([[1.0000001, -1e-7], [0.985, 0.0]], "float32")
    assert inputs.top_labels(probs, [0, 0])[0].max() == 1


def test_names_the_first_bad_row_of_many(monkeypatch):
    monkeypatch.setattr(inputs, "available_cores", lambda: 4)
    probs = np.full((1_000_000, 2), 0.5, "float32")
    probs[900_000:] = 0.6
    with pytest.raises(ValueError, match=r"probs\[900000\].* summing to 1.2"):
        read(probs, np.zeros(1_000_000, int))


@pytest.mark.parametrize("cores", [1, 4])
def test_blocks_cover_every_row_once_and_in_order(cores, monkeypatch):
    monkeypatch.setattr(inputs, "available_cores", lambda: cores)
    monkeypatch.setattr(inputs, "BLOCK_BYTES", 8)

    def rows(start, stop):
        return list(range(start, stop))

    for count in (1, 7, 8, 9, 1000):
        ranges = inputs.map_blocks(rows, count, 1)
        assert np.concatenate(ranges).tolist() == list(range(count))
    assert inputs.map_blocks(rows, 3, 100) == [[0], [1], [2]]

    def fail_late(start, stop):
        if start >= 500:
            raise ValueError(f"row {start}")

    for _ in range(5):
        with pytest.raises(ValueError, match="^row 500$"):
            inputs.map_blocks(fail_late, 1000, 8)


@pytest.mark.parametrize("case", CASES)
def test_top_labels_equal_the_definition(case):
    probs, labels = CASES[case]
    expected = naive.top(probs, labels)
    for array in (probs, np.asfortranarray(probs)):
        confidence, correct, _ = inputs.top_labels(array, labels)
        np.testing.assert_array_equal(confidence, expected[0])
        np.testing.assert_array_equal(correct, expected[1])
        assert confidence.dtype == probs.dtype
    confidence, correct, _ = inputs.top_labels(probs[::3], labels[::3])
    np.testing.assert_array_equal(confidence, expected[0][::3])


@pytest.mark.parametrize("num_classes", [2, 300])
def test_top_labels_of_logits_and_of_ties(num_classes):
    logits, labels = sample(50, num_classes)
    confidence, correct, _ = inputs.top_labels(logits, labels, from_logits=True)
    expected = softmax(logits.astype(float))
    np.testing.assert_allclose(confidence, expected.max(axis=1), rtol=3e-6)
    np.testing.assert_array_equal(correct, expected.argmax(axis=1) == labels)
    probs = np.full((3, num_classes), 1 / num_classes)
    ids = [0, 1, num_classes - 1]
    assert inputs.top_labels(probs, ids)[1].tolist() == [True, False, False]


def test_tensors_become_float32():
    batch = inputs.standardize(
        np.array([[0], [2]]), tf.cast(PROBS, "bfloat16"), sample_weight=[1, 2]
    )
    assert batch.labels.shape == batch.weight.shape == (2,)
    for tensor in (batch.labels, batch.predictions, batch.weight):
        assert tensor.dtype == "float32"


def test_weights_that_count_have_a_mean_of_1():
    batch = inputs.standardize(LABELS, PROBS, sample_weight=3)
    np.testing.assert_array_equal(batch.sample_weight, [3, 3])
    np.testing.assert_array_equal(batch.weight, [1, 1])
    batch = inputs.standardize(LABELS, PROBS, sample_weight=[0, 7])
    np.testing.assert_array_equal(batch.weight, [0, 1])


def test_many_classes_stay_exact():
    ids = np.array([0, 49_999], "float32")
    batch = inputs.standardize(ids, np.zeros((2, 50_000)), from_logits=True)
    rows = batch.label_distribution()
    np.testing.assert_array_equal(np.argmax(rows, axis=1), ids)
    np.testing.assert_array_equal(batch.class_ids(), ids)
    assert batch.num_classes == 50_000


def test_probabilities_confidence_and_entropy():
    smoothed = (1 - 1e-5) * SOFTMAX.astype("float64") + 1e-5 / 7
    entropy = -(smoothed * np.log(smoothed)).sum(axis=1)
    for batch in (
        inputs.standardize(np.zeros(50), LOGITS, from_logits=True),
        inputs.standardize(np.zeros(50), SOFTMAX),
    ):
        # Float32 exponentials: 3e-7.
        np.testing.assert_allclose(batch.probabilities(), SOFTMAX, rtol=3e-6)
        np.testing.assert_allclose(
            np.exp(batch.log_probabilities()), SOFTMAX, rtol=1e-5, atol=1e-7
        )
        np.testing.assert_allclose(
            batch.confidence(), SOFTMAX.max(axis=1), rtol=3e-6
        )
        np.testing.assert_allclose(
            batch.entropy(), entropy, rtol=1e-5, atol=2e-6
        )


def test_gradients_are_finite_at_the_ends():
    for y_pred, from_logits in (
        ([[1e30, -1e30, 0.0], [0.0, 0.0, 0.0], [np.inf, 0, -np.inf]], True),
        ([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]], False),
    ):
        y_pred = tf.constant(y_pred)
        for method in ("entropy", "confidence", "log_probabilities"):
            with tf.GradientTape() as tape:
                tape.watch(y_pred)
                batch = inputs.standardize([0, 0, 0], y_pred, from_logits)
                total = tf.reduce_sum(getattr(batch, method)())
            assert np.isfinite(tape.gradient(total, y_pred)).all()


def test_ties_are_predicted_as_the_first_class():
    y_pred = [[0.4, 0.4, 0.2], [0.2, 0.4, 0.4]]
    for labels, correct in (([0, 1], 1.0), ([1, 2], 0.0)):
        batch = inputs.standardize(labels, y_pred)
        np.testing.assert_array_equal(batch.correctness(), correct)
    x = np.random.default_rng(0).integers(-2, 3, (200, 6)) * np.float32(0.5)
    x[:2] = [[-0.0, 0, 0, 0, 0, 0], [0, -0.0, 0, 0, 0, 0]]
    np.testing.assert_array_equal(inputs.first_argmax(x), x.argmax(axis=1))
