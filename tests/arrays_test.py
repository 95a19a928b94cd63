import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from caltrain_tf import inputs
from tests.metrics import naive
from tests.metrics.cases import CASES, sample, softmax

PROBS = np.array([[0.9, 0.1, 0.0], [0.2, 0.3, 0.5]], "float32")
LABELS = np.array([0, 2])


class HasArray:
    def __array__(self, dtype=None, copy=None):
        return PROBS


@pytest.mark.parametrize(
    "probs",
    [PROBS, PROBS.tolist(), tf.constant(PROBS), HasArray(), PROBS * 1.0],
    ids=["numpy", "list", "tensor", "__array__", "copy"],
)
def test_takes_anything_array_like(probs):
    checked, ids = inputs.check_predictions(probs, LABELS)
    np.testing.assert_array_equal(checked.astype("float32"), PROBS)
    assert ids.dtype == np.int64


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_does_not_copy_predictions(dtype):
    probs = PROBS.astype(dtype)
    checked, _ = inputs.check_predictions(probs, LABELS)
    assert np.shares_memory(checked, probs)


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16, "int32"])
def test_other_types_become_float32(dtype):
    probs = np.eye(3).astype(dtype)
    checked, _ = inputs.check_predictions(probs, [0, 1, 2])
    assert checked.dtype == np.float32
    np.testing.assert_array_equal(checked, np.eye(3))


@pytest.mark.parametrize(
    "labels",
    [
        [0, 2],
        [0.0, 2.0],
        [[0], [2]],
        [[1, 0, 0], [0, 0, 1]],
        [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]],
        np.array([0, 2], "uint8"),
        tf.constant([0, 2]),
    ],
)
def test_labels_become_ids(labels):
    assert inputs.check_predictions(PROBS, labels)[1].tolist() == [0, 2]


def bad(row, column, value):
    probs = PROBS.copy()
    probs[row, column] = value
    return probs


@pytest.mark.parametrize(
    ("probs", "message"),
    [
        (bad(1, 2, np.nan), r"`probs` .*probs\[1\] with nan in column 2"),
        (bad(0, 1, np.inf), r"`probs` .*probs\[0\] with inf in column 1"),
        (bad(1, 0, -0.2), r"in \[0, 1\].*probs\[1\] from -0.2 to 0.5"),
        (bad(1, 0, 1.2), r"in \[0, 1\].*probs\[1\] from 0.3 to 1.2"),
        (bad(1, 0, 0.23), r"sum to 1 .*probs\[1\] summing to 1.03"),
        (PROBS[0], r"probs.shape=\(3,\)"),
        (PROBS[:, :1], r"probs.shape=\(2, 1\)"),
        (PROBS[:0], r"probs.shape=\(0, 3\)"),
        (PROBS[None], r"probs.shape=\(1, 2, 3\)"),
        (PROBS + 0j, "`probs` must hold real numbers.*dtype=complex64"),
        ([["a", "b"]], "`probs` must hold real numbers.*dtype=<U1"),
        ([[0.1, 0.9], [1.0]], "`probs` must be convertible"),
    ],
)
def test_bad_predictions(probs, message):
    with pytest.raises(ValueError, match=message):
        inputs.check_predictions(probs, LABELS)


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
        ([[1, 1, 0], [0, 0, 1]], r"one-hot rows.*labels\[0\]=\[1, 1, 0\]"),
        ([[1, 0, 0], [0.1, 0.9, 0]], r"labels\[1\]=\[0.1, 0.9, 0.0\]"),
        ([], r"labels.shape=\(0,\)"),
    ],
)
def test_bad_labels(labels, message):
    with pytest.raises(ValueError, match=message):
        inputs.check_predictions(PROBS, labels)


def test_logits_need_only_be_finite():
    logits = np.array([[1e3, -1e3], [3e38, 3e38]], "float32")
    inputs.check_predictions(logits, [0, 1], from_logits=True, name="logits")
    logits[1, 0] = np.nan
    with pytest.raises(ValueError, match=r"`logits` .*logits\[1\] with nan"):
        inputs.check_predictions(
            logits, [0, 1], from_logits=True, name="logits"
        )


def test_rounding_is_not_an_error():
    probs = np.array([[1.0000001, -1e-7], [0.985, 0.0]], "float32")
    inputs.check_predictions(probs, [0, 0])


def test_names_the_first_bad_row_of_many(monkeypatch):
    monkeypatch.setattr(inputs, "available_cores", lambda: 4)
    probs = np.full((1_000_000, 2), 0.5, "float32")
    probs[900_000:] = 0.6
    with pytest.raises(ValueError, match=r"probs\[900000\] summing to 1.2"):
        inputs.check_predictions(probs, np.zeros(1_000_000, int))


@pytest.mark.parametrize("num_rows", [1, 7, 8, 9, 1000])
@pytest.mark.parametrize("cores", [1, 4])
def test_covers_every_row_once_and_in_order(num_rows, cores, monkeypatch):
    monkeypatch.setattr(inputs, "available_cores", lambda: cores)
    ranges = inputs.map_blocks(
        lambda start, stop: list(range(start, stop)), num_rows, 1, block_bytes=8
    )
    assert np.concatenate(ranges).tolist() == list(range(num_rows))


def test_a_row_larger_than_a_block_is_a_block():
    assert inputs.map_blocks(
        lambda start, stop: stop - start, 3, 100, block_bytes=8
    ) == [1, 1, 1]


def test_raises_the_error_of_the_first_block(monkeypatch):
    monkeypatch.setattr(inputs, "available_cores", lambda: 4)

    def fail_late(start, stop):
        if start >= 500:
            raise ValueError(f"row {start}")

    for _ in range(20):
        with pytest.raises(ValueError, match="^row 500$"):
            inputs.map_blocks(fail_late, 1000, 1, block_bytes=1)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("order", ["C", "F"])
def test_top_label_equals_the_definition(case, order):
    probs, labels = CASES[case]
    confidence, correct, _ = inputs.top_labels(
        np.array(probs, order=order), labels
    )
    expected_confidence, expected_correct = naive.top(probs, labels)
    np.testing.assert_array_equal(confidence, expected_confidence)
    np.testing.assert_array_equal(correct, expected_correct)
    assert confidence.dtype == probs.dtype


@pytest.mark.parametrize("num_classes", [2, 300])
def test_top_label_of_logits(num_classes):
    logits, labels = sample(50, num_classes)
    confidence, correct, _ = inputs.top_labels(logits, labels, from_logits=True)
    expected = softmax(logits.astype(float))
    np.testing.assert_allclose(confidence, expected.max(axis=1), rtol=3e-6)
    np.testing.assert_array_equal(correct, expected.argmax(axis=1) == labels)


@pytest.mark.parametrize("num_classes", [2, 300])
def test_top_label_the_first_of_equal_classes_is_predicted(num_classes):
    probs = np.full((3, num_classes), 1 / num_classes)
    assert inputs.top_labels(probs, [0, 1, num_classes - 1])[1].tolist() == [
        True,
        False,
        False,
    ]


def test_top_label_rounding_above_one_is_cut():
    probs = np.array([[1.0000001, 0.0]], "float32")
    assert inputs.top_labels(probs, [0])[0].tolist() == [1.0]


def test_top_label_takes_a_view_that_is_not_contiguous():
    probs, labels = CASES["calibrated_10"]
    expected = inputs.top_labels(np.ascontiguousarray(probs[::3]), labels[::3])
    confidence, correct, _ = inputs.top_labels(probs[::3], labels[::3])
    np.testing.assert_array_equal(confidence, expected[0])
    np.testing.assert_array_equal(correct, expected[1])


def test_shifting_does_not_overflow():
    logits = np.float32([[3e38, -3e38]])
    shifted = inputs.shift_logits(logits)
    assert shifted.tolist() == [[0.0, inputs.LOWEST_LOGIT]]
