import numpy as np
import tensorflow as tf

from caltrain_tf.ops import predictions

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(0, 3, (50, 7)).astype("float32")
PROBS = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)


def test_confidence_needs_no_softmax():
    expected = PROBS.max(axis=1)
    np.testing.assert_allclose(
        predictions.confidence(LOGITS, from_logits=True), expected, rtol=3e-6
    )
    np.testing.assert_allclose(
        predictions.confidence(PROBS, from_logits=False), expected
    )


def test_entropy():
    smoothed = (1 - 1e-5) * PROBS.astype("float64") + 1e-5 / 7
    expected = -(smoothed * np.log(smoothed)).sum(axis=1)
    for y_pred, from_logits in ((LOGITS, True), (PROBS, False)):
        entropy = predictions.entropy(y_pred, from_logits)
        # Float32 probabilities: errors of 1e-7.
        np.testing.assert_allclose(entropy, expected, rtol=1e-5, atol=2e-6)
    uniform = predictions.entropy(np.zeros((1, 7), "float32"), True)
    np.testing.assert_allclose(
        uniform, predictions.largest_entropy(7), rtol=3e-6
    )


def test_the_gradient_of_entropy_is_that_of_the_softmax():
    logits = tf.constant(LOGITS)
    weights = np.linspace(-1, 2, 50, dtype="float32")
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(logits)
        probs = tf.nn.softmax(logits)
        totals = [
            tf.reduce_sum(weights * predictions.entropy(logits, True)),
            tf.reduce_sum(weights * predictions.entropy(probs, False)),
        ]
    ours, automatic = (tape.gradient(total, logits) for total in totals)
    np.testing.assert_allclose(ours, automatic, atol=3e-6)


def test_ties_are_predicted_as_the_first_class():
    y_pred = np.array([[0.4, 0.4, 0.2], [0.2, 0.4, 0.4]], "float32")
    for labels, correct in [([0, 1], 1.0), ([1, 2], 0.0)]:
        labels = np.array(labels, "float32")
        np.testing.assert_array_equal(
            predictions.correctness(labels, y_pred), correct
        )
