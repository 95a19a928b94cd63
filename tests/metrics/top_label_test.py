import numpy as np
import pytest

from caltrain_tf.metrics.top_label import top_label
from tests.metrics import naive
from tests.metrics.cases import CASES
from tests.metrics.cases import sample
from tests.metrics.cases import softmax


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("order", ["C", "F"])
def test_equals_the_definition(case, order):
    probs, labels = CASES[case]
    confidence, correct = top_label(np.array(probs, order=order), labels)
    expected_confidence, expected_correct = naive.top(probs, labels)
    np.testing.assert_array_equal(confidence, expected_confidence)
    np.testing.assert_array_equal(correct, expected_correct)
    assert confidence.dtype == probs.dtype


@pytest.mark.parametrize("num_classes", [2, 48, 49, 300])
def test_of_logits(num_classes):
    logits, labels = sample(50, num_classes)
    confidence, correct = top_label(logits, labels, from_logits=True)
    expected = softmax(logits.astype(float))
    np.testing.assert_allclose(confidence, expected.max(axis=1), rtol=3e-6)
    np.testing.assert_array_equal(correct, expected.argmax(axis=1) == labels)


@pytest.mark.parametrize("num_classes", [2, 48, 49])
def test_the_first_of_equal_classes_is_predicted(num_classes):
    probs = np.full((3, num_classes), 1 / num_classes)
    assert top_label(probs, [0, 1, num_classes - 1])[1].tolist() == [
        True,
        False,
        False,
    ]


def test_rounding_above_one_is_cut():
    probs = np.array([[1.0000001, 0.0]], "float32")
    assert top_label(probs, [0])[0].tolist() == [1.0]


def test_takes_a_view_that_is_not_contiguous():
    probs, labels = CASES["calibrated_10"]
    expected = top_label(np.ascontiguousarray(probs[::3]), labels[::3])
    confidence, correct = top_label(probs[::3], labels[::3])
    np.testing.assert_array_equal(confidence, expected[0])
    np.testing.assert_array_equal(correct, expected[1])
