"""Half-precision predictions in, float32 inside."""

import keras
from keras import ops

LARGEST_FLOAT16 = 65504.0


def to_float32(tensor):
    """Casts to float32; the gradient of a float16 tensor stays finite.

    The derivative of log p at p = 1e-5 is 1e5, more than float16 can hold: a
    plain cast would hand back an infinite gradient.
    """
    if keras.backend.standardize_dtype(tensor.dtype) == "float16":
        return _cast_with_finite_gradient(tensor)
    return ops.cast(tensor, "float32")


@ops.custom_gradient
def _cast_with_finite_gradient(tensor):
    def gradient(*args, upstream=None):
        if upstream is None:
            (upstream,) = args
        finite = ops.clip(upstream, -LARGEST_FLOAT16, LARGEST_FLOAT16)
        return ops.cast(finite, "float16")

    return ops.cast(tensor, "float32"), gradient
