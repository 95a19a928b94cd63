import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from caltrain_tf.ops.laplacian import laplacian_quadratic_form


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
