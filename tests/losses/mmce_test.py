import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import caltrain_tf as ct
from caltrain_tf.losses.kernel import laplacian_quadratic_form


def test_a_million_examples():
    rng = np.random.default_rng(0)
    count = 1_000_000
    confidence = rng.uniform(0.5, 1, count).astype("float32")
    labels = (rng.random(count) > 0.7 * confidence).astype("int64")
    probs = tf.stack([confidence, 1 - confidence], axis=1)
    for function in (
        ct.losses.mmce,
        tf.function(ct.losses.mmce, jit_compile=True),
    ):
        with tf.GradientTape() as tape:
            tape.watch(probs)
            value = function(labels, probs)
        gradient = tape.gradient(value, probs)
        # The limit of many examples, by quadrature: a confidence c is right
        # with probability 0.7 c, so that the excess is 0.3 c.
        grid = 0.5 + 0.5 * (np.arange(2000) + 0.5) / 2000
        kernel = np.exp(-np.abs(grid[:, None] - grid) / 0.4)
        expected = (0.3 * grid) @ kernel @ (0.3 * grid) / 2000**2
        np.testing.assert_allclose(value, expected, rtol=5e-3)
        assert np.isfinite(gradient).all()
        assert np.abs(gradient).max() > 0


def test_weighted_counts_both_kinds_the_same():
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


def test_tied_confidences_do_not_pull_at_each_other():
    confidence = tf.constant([0.6, 0.8, 0.8, 0.8, 0.9])
    labels = np.array([0, 0, 1, 0, 1])
    with tf.GradientTape() as tape:
        tape.watch(confidence)
        probs = tf.stack([confidence, 1 - confidence], axis=1)
        value = ct.losses.mmce(labels, probs)
    c = confidence.numpy().astype("float64")
    e = c - (labels == 0)
    kernel = np.exp(-np.abs(c[:, None] - c) / 0.4)
    slope = -np.sign(c[:, None] - c) * kernel / 0.4
    expected = 2 * (kernel @ e + e * (slope @ e)) / 25
    np.testing.assert_allclose(
        tape.gradient(value, confidence), expected, rtol=1e-5
    )


def matrix_form(x, e, width):
    """Value and gradients by the N x N matrix in float64."""
    difference = x[:, None] - x[None, :]
    kernel = np.exp(-np.abs(difference) / width)
    slope = -np.sign(difference) * kernel / width
    return e @ kernel @ e, 2 * e * (slope @ e), 2 * kernel @ e


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    # A coarse grid, so that ties are common.
    points=st.lists(st.integers(0, 20), min_size=1, max_size=40),
    width=st.sampled_from([0.01, 0.05, 0.4, 10.0]),
    seed=st.integers(0, 1000),
)
def test_equals_the_matrix_form(points, width, seed):
    x = np.array(points) / 20
    e = np.random.default_rng(seed).normal(size=len(x))
    value, wrt_points, wrt_coefficients = matrix_form(
        x.astype("float32").astype("float64"), e, width
    )
    points = tf.constant(x, "float32")
    coefficients = tf.constant(e, "float32")
    with tf.GradientTape() as tape:
        tape.watch([points, coefficients])
        actual = laplacian_quadratic_form(points, coefficients, width)
    gradients = tape.gradient(actual, [points, coefficients])
    scale = np.sum(np.abs(e)) ** 2
    np.testing.assert_allclose(actual, value, atol=1e-6 * scale)
    np.testing.assert_allclose(
        gradients[0], wrt_points, atol=1e-5 * scale / width
    )
    np.testing.assert_allclose(
        gradients[1], wrt_coefficients, atol=1e-5 * (1 + np.abs(e).sum())
    )


@pytest.mark.parametrize("jit_compile", [False, True])
def test_compiled_with_unknown_length(jit_compile):
    compiled = tf.function(
        lambda x, e: laplacian_quadratic_form(x, e, 0.4),
        [tf.TensorSpec([None]), tf.TensorSpec([None])],
        jit_compile=jit_compile,
    )
    rng = np.random.default_rng(0)
    x, e = rng.random(50), rng.normal(size=50)
    np.testing.assert_allclose(
        compiled(tf.constant(x, "float32"), tf.constant(e, "float32")),
        matrix_form(x, e, 0.4)[0],
        rtol=1e-5,
    )
