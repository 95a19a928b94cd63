import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from tests.losses import naive


def test_a_million_examples():
    rng = np.random.default_rng(0)
    count = 1_000_000
    confidence = rng.uniform(0.5, 1, count).astype("float32")
    labels = (rng.random(count) > 0.7 * confidence).astype("int64")
    probs = tf.stack([confidence, 1 - confidence], axis=1)
    # A confidence c is right with probability 0.7 c. In the limit of many
    # examples, gbar(c) = -2 x the integral of 0.3 t from 0.5 to c.
    grid = 0.5 + 0.5 * (np.arange(2000) + 0.5) / 2000
    expected = np.mean((0.3 * (grid**2 - 0.25)) ** 2)
    for function in (
        ct.losses.esd,
        tf.function(ct.losses.esd, jit_compile=True),
    ):
        with tf.GradientTape() as tape:
            tape.watch(probs)
            value = function(labels, probs)
        gradient = tape.gradient(value, probs)
        np.testing.assert_allclose(value, expected, rtol=1e-2)
        assert np.isfinite(gradient).all()
        assert np.abs(gradient).max() > 0


def exact(labels, probs):
    """ESD in float64 by sums over the examples of each confidence."""
    c = probs.max(axis=1).astype("float64")
    gap = (probs.argmax(axis=1) == labels) - c
    values, group = np.unique(c, return_inverse=True)
    n = len(c)
    sums = np.cumsum(np.bincount(group, gap, len(values)))[group] - gap
    squares = np.cumsum(np.bincount(group, gap**2, len(values)))[group]
    pairs = sums**2 - (squares - gap**2)
    return np.mean(pairs) / ((n - 1) * (n - 2))


@pytest.mark.parametrize("kind", ["one", "few", "all"])
def test_a_million_examples_do_not_lose_digits(kind):
    rng = np.random.default_rng(0)
    count = 1_000_000
    confidence = {
        "one": np.full(count, 0.9),
        "few": rng.choice([0.6, 0.7, 0.9], count),
        "all": rng.uniform(0.55, 1, count),
    }[kind].astype("float32")
    labels = (rng.random(count) > 0.7 * confidence).astype("int64")
    probs = np.stack([confidence, 1 - confidence], axis=1)
    y_pred = tf.constant(probs)
    with tf.GradientTape() as tape:
        tape.watch(y_pred)
        value = ct.losses.esd(labels, y_pred)
    # 2e-5 was seen; one sum of a million terms is wrong by 2e-2.
    np.testing.assert_allclose(value, exact(labels, probs), rtol=2e-4)
    # The slope along a step of all confidences, by differences in float64.
    step = 1e-5 * np.array([1.0, -1.0])
    wide = probs.astype("float64")
    slope = exact(labels, wide + step) - exact(labels, wide - step)
    got = np.sum(tape.gradient(value, y_pred).numpy() * step, dtype="float64")
    np.testing.assert_allclose(2 * got, slope, rtol=2e-4)


def test_uneven_weights_count_as_they_are():
    probs = np.array([[0.9, 0.1], [0.7, 0.3], [0.6, 0.4], [0.8, 0.2]])
    probs = np.concatenate([probs, probs[2:]])  # And some ties.
    labels = np.array([1, 0, 0, 1, 0, 1])
    for weights in (
        [1, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3],
        [1e6, 1, 1, 1, 2, 3],
        [1, 1e-2, 1e-2, 0, 0, 0],
        [1e-30, 1, 1, 0, 0, 0],
    ):
        expected = naive.esd(labels, probs, weights)
        value = ct.losses.esd(labels, probs, sample_weight=weights)
        np.testing.assert_allclose(value, expected, rtol=2e-6)


def test_ties_count_for_each_other():
    confidence = np.array([0.6, 0.8, 0.8, 0.8, 0.9, 0.9], "float32")
    labels = np.array([0, 0, 1, 0, 1, 1])
    probs = np.stack([confidence, 1 - confidence], axis=1)
    expected = naive.esd(labels, probs.astype("float64"))
    np.testing.assert_allclose(
        ct.losses.esd(labels, probs), expected, rtol=1e-5
    )
    # Apart, they do not.
    apart = confidence + np.array([0, 0, 1, 2, 0, 1], "float32") * 1e-4
    probs = np.stack([apart, 1 - apart], axis=1)
    other = naive.esd(labels, probs.astype("float64"))
    assert abs(other - expected) > 0.1 * abs(expected)
    np.testing.assert_allclose(ct.losses.esd(labels, probs), other, rtol=1e-5)


def test_saturated_logits_are_no_ties():
    # Their confidences are 1 in float32, but not the same.
    logits = np.array([[0, z] for z in (18, 20, 22, 24, 26)], "float32")
    labels = np.array([1, 0, 0, 1, 0])
    expected = naive.esd(labels, naive.softmax(logits))
    tied = naive.esd(labels, np.tile([[0.0, 1.0]], (5, 1)))
    assert abs(tied - expected) > 0.1
    np.testing.assert_allclose(
        ct.losses.esd(labels, logits, from_logits=True), expected, rtol=1e-5
    )


def test_very_saturated_logits_are_ties_as_in_float64():
    logits = np.array([[0, z] for z in (38, 45, 60, 90, 200)], "float32")
    labels = np.array([1, 0, 0, 1, 0])
    expected = naive.esd(labels, naive.softmax(logits))
    np.testing.assert_allclose(
        ct.losses.esd(labels, logits, from_logits=True), expected, rtol=1e-5
    )


def test_fewer_than_three_examples_are_0():
    probs = np.array([[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]])
    for labels, weights in (
        ([1], None),
        ([1, 0], None),
        ([1, 0, 1], [0.3, 0.7, 0.0]),
    ):
        y_pred = tf.constant(probs[: len(labels)])
        with tf.GradientTape() as tape:
            tape.watch(y_pred)
            value = ct.losses.esd(labels, y_pred, sample_weight=weights)
        assert float(value) == 0.0
        np.testing.assert_array_equal(tape.gradient(value, y_pred), 0.0)


def test_of_a_calibrated_model_it_is_0_on_average():
    rng = np.random.default_rng(0)
    values = []
    for _ in range(400):
        confidence = rng.uniform(0.5, 1, 20)
        labels = (rng.random(20) > confidence).astype("int64")
        probs = np.stack([confidence, 1 - confidence], axis=1)
        values.append(float(ct.losses.esd(labels, probs)))
    error = np.std(values) / np.sqrt(len(values))
    assert min(values) < 0
    assert abs(np.mean(values)) < 3 * error
