import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from caltrain_tf.losses.kernel import (
    BLOCK,
    is_first_of_ties,
    running_sum_before,
    sums_over_ties,
)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    # A coarse grid, so that ties are common.
    points=st.lists(st.integers(0, 9), min_size=1, max_size=30).map(sorted),
    falling=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_equals_a_comparison_of_all_pairs(points, falling, seed):
    x = np.array(points[::-1] if falling else points, "float32")
    values = np.random.default_rng(seed).normal(size=(len(x), 2)).astype("f")
    is_first = is_first_of_ties(x)
    np.testing.assert_array_equal(
        is_first, [value not in x[:i] for i, value in enumerate(x)]
    )
    is_equal = (x[:, None] == x).astype("float32")
    np.testing.assert_allclose(
        sums_over_ties(is_first, values), is_equal @ values, atol=1e-5
    )


@pytest.mark.parametrize("count", [1, 5, BLOCK, BLOCK + 1, 3 * BLOCK + 7])
def test_sums_in_blocks_are_those_of_all(count):
    values = np.random.default_rng(0).random(count).astype("float32")
    expected = np.concatenate([[0.0], np.cumsum(values[:-1], dtype="float64")])
    in_a_graph = tf.function(
        running_sum_before, [tf.TensorSpec([None], "float32")]
    )
    for function in (running_sum_before, in_a_graph):
        np.testing.assert_allclose(function(values), expected, rtol=1e-5)
    # Three points of a value, then all others of another one.
    points = np.r_[np.zeros(3), np.ones(count)].astype("float32")
    values = np.r_[[1.0, 2.0, 4.0], values].astype("float32")[:, None]
    sums = sums_over_ties(is_first_of_ties(points), values)
    np.testing.assert_allclose(sums[:3], 7.0)
    np.testing.assert_allclose(sums[3:], values[3:].sum(), rtol=1e-5)
