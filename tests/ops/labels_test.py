import numpy as np
import pytest
import tensorflow as tf

from caltrain_tf.ops import labels

PROBS = np.array([[0.2, 0.8], [0.6, 0.4]])


def test_everything_becomes_float32():
    y_true, y_pred, weight = labels.standardize(
        np.array([[1], [0]]), tf.cast(PROBS, "bfloat16"), sample_weight=[1, 2]
    )
    assert y_true.shape == weight.shape == (2,)
    assert {t.dtype for t in (y_true, y_pred, weight)} == {tf.float32}


def test_a_scalar_weight_counts_for_all():
    _, _, weight = labels.standardize([1, 0], PROBS, sample_weight=3)
    np.testing.assert_array_equal(weight, [3, 3])


@pytest.mark.parametrize("weight", [np.ones((2, 2)), np.ones(3)])
def test_weights_of_another_shape(weight):
    with pytest.raises(ValueError, match="`sample_weight`.*Received"):
        labels.standardize([1, 0], PROBS, sample_weight=weight)


def test_first_argmax_equals_argmax():
    x = np.random.default_rng(0).integers(0, 5, (200, 6)).astype("float32")
    np.testing.assert_array_equal(labels.first_argmax(x), x.argmax(axis=1))


def test_many_classes_stay_exact():
    ids = np.array([0, 49_999, 16_777_215], "float32")
    distribution = labels.label_distribution(ids[:2], 50_000)
    np.testing.assert_array_equal(np.argmax(distribution, axis=1), ids[:2])


def test_infinite_logits_are_saturated_ones():
    logits = tf.constant([[np.inf, 0.0, -np.inf]])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        _, finite, _ = labels.standardize([0], logits, from_logits=True)
        total = tf.reduce_sum(tf.nn.log_softmax(finite))
    np.testing.assert_allclose(finite, [[1e30, 0, -1e30]])
    assert np.isfinite(tape.gradient(total, logits)).all()
