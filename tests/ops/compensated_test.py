import numpy as np
import pytest
import tensorflow as tf

from caltrain_tf.ops import compensated


@pytest.mark.parametrize("jit_compile", [True, False])
@pytest.mark.parametrize("term", [1.0, 0.3, 1e-3])
def test_long_sums_keep_their_digits(jit_compile, term):
    @tf.function(jit_compile=jit_compile)
    def add_many(high, low, value):
        for _ in tf.range(10_000):
            high, low = compensated.add(high, low, value)
        return high, low

    start = tf.constant(2.0**24)
    high, low = add_many(start, tf.constant(0.0), tf.constant(term))
    expected = 2.0**24 + 10_000 * float(np.float32(term))
    assert float(high) + float(low) == pytest.approx(expected, abs=1e-2)
    # A plain sum would not have moved at all for 1 and less.
    assert float(start + term) == 2.0**24


def test_the_error_of_one_addition_is_exact():
    generator = np.random.default_rng(0)
    a, b = generator.normal(size=(2, 1000)).astype("float32")
    b *= 1e-6
    high, low = compensated.add(a, np.zeros_like(a), b)
    np.testing.assert_array_equal(
        high.astype(float) + low, a.astype(float) + b.astype(float)
    )
