import numpy as np
import tensorflow as tf

from caltrain_tf.data.normalize import normalize

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def test_it_equals_the_formula():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (4, 5, 6, 3), dtype=np.uint8)
    expected = (images / 255 - MEAN) / np.array(STD)
    result = normalize(images, MEAN, STD)
    assert result.dtype == tf.float32
    # Rounding reaches 2.7e-7; a step of one pixel value is 0.015.
    np.testing.assert_allclose(result, expected, atol=3e-6)
    half = normalize(images, MEAN, STD, "bfloat16")
    assert half.dtype == tf.bfloat16
    np.testing.assert_array_equal(half, tf.cast(result, tf.bfloat16))
