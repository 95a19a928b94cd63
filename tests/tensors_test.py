import numpy as np
import tensorflow as tf

from caltrain_tf import inputs

PROBS = np.array([[0.2, 0.8], [0.6, 0.4]])
LOGITS = np.random.default_rng(0).normal(0, 3, (50, 7)).astype("float32")
SOFTMAX = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)


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
    ids = np.array([0, 49_999], "float32")
    batch = inputs.standardize(ids, np.zeros((2, 50_000)), from_logits=True)
    rows = batch.label_distribution()
    np.testing.assert_array_equal(np.argmax(rows, axis=1), ids)
    np.testing.assert_array_equal(batch.class_ids(), ids)
    assert batch.num_classes == 50_000


def both_kinds():
    """The same predictions as logits and as probabilities."""
    labels = np.zeros(50)
    yield inputs.standardize(labels, LOGITS, from_logits=True)
    yield inputs.standardize(labels, SOFTMAX)


def test_probabilities_and_confidence():
    for batch in both_kinds():
        # Float32 exponentials: 3e-7.
        np.testing.assert_allclose(batch.probabilities(), SOFTMAX, rtol=3e-6)
        np.testing.assert_allclose(
            np.exp(batch.log_probabilities()), SOFTMAX, rtol=1e-5, atol=1e-7
        )
        np.testing.assert_allclose(
            batch.confidence(), SOFTMAX.max(axis=1), rtol=3e-6
        )


def test_entropy():
    smoothed = (1 - 1e-5) * SOFTMAX.astype("float64") + 1e-5 / 7
    expected = -(smoothed * np.log(smoothed)).sum(axis=1)
    for batch in both_kinds():
        # Float32 probabilities: errors of 1e-7.
        np.testing.assert_allclose(
            batch.entropy(), expected, rtol=1e-5, atol=2e-6
        )
    uniform = inputs.standardize([0], np.zeros((1, 7)), from_logits=True)
    np.testing.assert_allclose(uniform.entropy(), np.log(7), rtol=3e-6)


def test_gradients_are_finite_at_the_ends():
    for y_pred, from_logits in (
        ([[1e30, -1e30, 0.0], [0.0, 0.0, 0.0]], True),
        ([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]], False),
    ):
        y_pred = tf.constant(y_pred)
        for method in ("entropy", "confidence", "log_probabilities"):
            with tf.GradientTape() as tape:
                tape.watch(y_pred)
                batch = inputs.standardize([0, 0], y_pred, from_logits)
                total = tf.reduce_sum(getattr(batch, method)())
            assert np.isfinite(tape.gradient(total, y_pred)).all()


def test_ties_are_predicted_as_the_first_class():
    y_pred = [[0.4, 0.4, 0.2], [0.2, 0.4, 0.4]]
    for labels, correct in (([0, 1], 1.0), ([1, 2], 0.0)):
        batch = inputs.standardize(labels, y_pred)
        np.testing.assert_array_equal(batch.correctness(), correct)


def test_infinite_logits_are_saturated_ones():
    logits = tf.constant([[np.inf, 0.0, -np.inf]])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        finite = inputs.standardize([0], logits, from_logits=True).predictions
        total = tf.reduce_sum(tf.nn.log_softmax(finite))
    np.testing.assert_allclose(finite, [[1e30, 0, -1e30]], rtol=1e-6)
    assert np.isfinite(tape.gradient(total, logits)).all()
