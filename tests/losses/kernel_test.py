"""MMCE and ESD: sums over pairs and triples by sorting, ties, many examples."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import caltrain_tf as ct
from caltrain_tf.losses import kernel
from tests.losses import naive


def two_classes(confidence):
    return tf.stack([confidence, 1 - confidence], axis=1)


def many_examples(kind):
    rng = np.random.default_rng(0)
    confidence = {
        "few": rng.choice([0.6, 0.7, 0.9], 1_000_000),
        "all": rng.uniform(0.55, 1, 1_000_000),
    }[kind].astype("float32")
    labels = (rng.random(1_000_000) > 0.7 * confidence).astype("int64")
    return labels, np.stack([confidence, 1 - confidence], axis=1)


def exact_esd(labels, probs):
    """ESD in float64 by sums over the examples of each confidence."""
    c = probs.max(axis=1).astype("float64")
    gap = (probs.argmax(axis=1) == labels) - c
    values, group = np.unique(c, return_inverse=True)
    sums = np.cumsum(np.bincount(group, gap, len(values)))[group] - gap
    squares = np.cumsum(np.bincount(group, gap**2, len(values)))[group]
    pairs = sums**2 - (squares - gap**2)
    return np.mean(pairs) / ((len(c) - 1) * (len(c) - 2))


def exact_mmce(labels, probs):
    """MMCE in float64 by a histogram of 4,500 cells."""
    c = probs.max(axis=1).astype("float64")
    cell = np.round((c - 0.55) * 1e4).astype(int)
    centre = 0.55 + np.arange(cell.max() + 1) / 1e4
    sums = np.bincount(cell, c - (probs.argmax(axis=1) == labels))
    matrix = np.exp(-np.abs(centre[:, None] - centre) / 0.4)
    return sums @ matrix @ sums / len(c) ** 2


@pytest.mark.parametrize("kind", ["few", "all"])
def test_a_million_examples_do_not_lose_digits(kind):
    labels, probs = many_examples(kind)
    y_pred = tf.constant(probs)
    with tf.GradientTape() as tape:
        tape.watch(y_pred)
        value = ct.losses.esd(labels, y_pred)
    # 2e-5 was seen; one sum of a million terms is wrong by 2e-2.
    np.testing.assert_allclose(value, exact_esd(labels, probs), rtol=2e-4)
    # The slope along a step of all confidences, by differences in float64.
    step = 1e-5 * np.array([1.0, -1.0])
    wide = probs.astype("float64")
    slope = exact_esd(labels, wide + step) - exact_esd(labels, wide - step)
    got = np.sum(tape.gradient(value, y_pred).numpy() * step, dtype="float64")
    np.testing.assert_allclose(2 * got, slope, rtol=2e-4)
    np.testing.assert_allclose(
        ct.losses.mmce(labels, probs), exact_mmce(labels, probs), rtol=2e-4
    )


def test_esd_of_uneven_weights_and_ties():
    probs = np.array([[0.9, 0.1], [0.7, 0.3], [0.6, 0.4], [0.8, 0.2]])
    probs = np.concatenate([probs, probs[2:]])
    labels = np.array([1, 0, 0, 1, 0, 1])
    for weights in (
        [1, 1, 1, 1, 1, 1],
        [1, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3],
        [1e6, 1, 1, 1, 2, 3],
        [1, 1e-2, 1e-2, 0, 0, 0],
        [1e-30, 1, 1, 0, 0, 0],
    ):
        expected = naive.esd(labels, probs, weights)
        value = ct.losses.esd(labels, probs, sample_weight=weights)
        np.testing.assert_allclose(value, expected, rtol=2e-6)


# Confidences that are 1 in float32 are the same only if they are in float64.
@pytest.mark.parametrize("tops", [(18, 20, 22, 24, 26), (38, 45, 60, 90, 200)])
def test_esd_of_saturated_logits(tops):
    logits = np.array([[0, z] for z in tops], "float32")
    labels = np.array([1, 0, 0, 1, 0])
    expected = naive.esd(labels, naive.softmax(logits))
    tied = naive.esd(labels, np.tile([[0.0, 1.0]], (5, 1)))
    assert (abs(tied - expected) > 0.1) == (tops[0] < 30)
    np.testing.assert_allclose(
        ct.losses.esd(labels, logits, from_logits=True), expected, rtol=1e-5
    )


def test_esd_of_fewer_than_three_examples_is_0():
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


def test_esd_of_a_calibrated_model_is_0_on_average():
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.5, 1, (400, 20)).astype("float32")
    labels = (rng.random((400, 20)) > confidence).astype("float32")
    esd = tf.function(lambda y, c: ct.losses.esd(y, two_classes(c)))
    values = [esd(y, c) for y, c in zip(labels, confidence, strict=True)]
    assert min(values) < 0
    assert abs(np.mean(values)) < 3 * np.std(values) / np.sqrt(len(values))


def test_weighted_mmce_counts_both_kinds_the_same():
    # Nine right, one wrong, all at 0.75: 0.25 under and 0.75 over.
    probs = np.tile([[0.75, 0.25]], (10, 1))
    labels = np.array([0] * 9 + [1])
    np.testing.assert_allclose(
        ct.losses.mmce(labels, probs, weighted=True),
        (0.75 - 0.25) ** 2,
        rtol=1e-6,
    )
    np.testing.assert_allclose(
        ct.losses.mmce(labels, probs), ((0.75 - 9 * 0.25) / 10) ** 2, rtol=1e-5
    )


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    # A coarse grid, so that ties are common. They do not pull at each other.
    points=st.lists(st.integers(0, 20), min_size=1, max_size=40),
    width=st.sampled_from([0.01, 0.05, 0.4, 10.0]),
    seed=st.integers(0, 1000),
)
def test_the_quadratic_form_equals_that_of_the_matrix(points, width, seed):
    x = (np.array(points) / 20).astype("float32")
    e = np.random.default_rng(seed).normal(size=len(x))
    difference = x.astype("float64")[:, None] - x
    matrix = np.exp(-np.abs(difference) / width)
    slope = -np.sign(difference) * matrix / width
    points, coefficients = tf.constant(x), tf.constant(e, "float32")
    with tf.GradientTape() as tape:
        tape.watch([points, coefficients])
        actual = kernel.laplacian_quadratic_form(points, coefficients, width)
    gradients = tape.gradient(actual, [points, coefficients])
    scale = np.sum(np.abs(e)) ** 2
    np.testing.assert_allclose(actual, e @ matrix @ e, atol=1e-6 * scale)
    np.testing.assert_allclose(
        gradients[0], 2 * e * (slope @ e), atol=1e-5 * scale / width
    )
    np.testing.assert_allclose(
        gradients[1], 2 * matrix @ e, atol=1e-5 * (1 + np.abs(e).sum())
    )


@pytest.mark.parametrize("count", [1, 5, kernel.BLOCK + 1, 3 * kernel.BLOCK])
def test_sums_in_blocks_are_those_of_all(count):
    values = np.random.default_rng(0).random(count).astype("float32")
    expected = np.concatenate([[0.0], np.cumsum(values[:-1], dtype="float64")])
    in_a_graph = tf.function(
        kernel.running_sum_before, [tf.TensorSpec([None], "float32")]
    )
    for function in (kernel.running_sum_before, in_a_graph):
        np.testing.assert_allclose(function(values), expected, rtol=1e-5)
    # Three points of a value, then all others of another one.
    points = np.r_[np.zeros(3), np.ones(count)].astype("float32")
    values = np.r_[[1.0, 2.0, 4.0], values].astype("float32")
    (sums,) = kernel.sums_over_ties(kernel.is_first_of_ties(points), values)
    np.testing.assert_allclose(sums[:3], 7.0)
    np.testing.assert_allclose(sums[3:], values[3:].sum(), rtol=1e-5)
