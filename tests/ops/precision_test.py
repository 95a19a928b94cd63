import numpy as np
import pytest
import tensorflow as tf

from caltrain_tf.ops.precision import to_float32


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_gradients_keep_their_type_and_stay_finite(dtype):
    x = tf.constant([0.5, -2.0], dtype)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = to_float32(x)
        total = tf.reduce_sum(y * [3.0, 1e6])
    gradient = tape.gradient(total, x)
    assert y.dtype == "float32" and gradient.dtype == dtype
    gradient = tf.cast(gradient, "float32").numpy()
    assert np.isfinite(gradient).all()
    assert gradient[0] == 3.0
    if dtype == "float16":
        assert gradient[1] == 65504.0
