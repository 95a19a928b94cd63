import numpy as np
import tensorflow as tf

from caltrain_tf import inputs

PROBS = np.array([[0.2, 0.8], [0.6, 0.4]])


def test_everything_becomes_float32():
    batch = inputs.standardize(
        np.array([[1], [0]]), tf.cast(PROBS, "bfloat16"), sample_weight=[1, 2]
    )
    assert batch.labels.shape == batch.weight.shape == (2,)
    for tensor in (batch.labels, batch.predictions, batch.weight):
        assert tensor.dtype == "float32"


def test_weights_that_count_have_a_mean_of_1():
    batch = inputs.standardize([1, 0], PROBS, sample_weight=3)
    np.testing.assert_array_equal(batch.sample_weight, [3, 3])
    np.testing.assert_array_equal(batch.weight, [1, 1])
    batch = inputs.standardize([1, 0], PROBS, sample_weight=[0, 7])
    np.testing.assert_array_equal(batch.weight, [0, 1])


def test_first_argmax_equals_argmax():
    x = np.random.default_rng(0).integers(0, 5, (200, 6)).astype("float32")
    np.testing.assert_array_equal(inputs.first_argmax(x), x.argmax(axis=1))


def test_many_classes_stay_exact():
    ids = np.array([0, 49_999, 16_777_215], "float32")
    distribution = inputs.label_distribution(ids[:2], 50_000)
    np.testing.assert_array_equal(np.argmax(distribution, axis=1), ids[:2])


def test_infinite_logits_are_saturated_ones():
    logits = tf.constant([[np.inf, 0.0, -np.inf]])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        finite = inputs.standardize([0], logits, from_logits=True).predictions
        total = tf.reduce_sum(tf.nn.log_softmax(finite))
    np.testing.assert_allclose(finite, [[1e30, 0, -1e30]], rtol=1e-6)
    assert np.isfinite(tape.gradient(total, logits)).all()
