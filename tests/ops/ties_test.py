import numpy as np
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from caltrain_tf.ops.ties import is_first_of_ties
from caltrain_tf.ops.ties import sums_over_ties


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
