"""Parts of a corruption that NumPy computes."""

import math

import numpy as np
import tensorflow as tf

# About what the processor's second cache holds of all intermediate results.
_VALUES_AT_ONCE = 2**15


def by_rows(function, inputs, shape, dtype):
    """Computes a few images of a batch at a time, with NumPy.

    What is in the cache costs a fraction of what TensorFlow's operations need,
    each of which goes through the whole batch in memory.

    Args:
        function: From arrays of a few rows of each input to those of the
            result, `(rows, *shape)`. A row must not depend on the others.
        inputs: Tensors `(batch, ...)`, at least one.
        shape: Of a row of the result.
        dtype: Of the result.

    Returns:
        A tensor, `(batch, *shape)`.

    Example:
        >>> values = tf.constant([[1.0, 2.0], [3.0, 4.0]])
        >>> by_rows(lambda rows: rows.sum(1), [values], [], tf.float32).numpy()
        array([3., 7.], dtype=float32)
    """
    dtype = tf.as_dtype(dtype)
    inputs = [tf.convert_to_tensor(tensor) for tensor in inputs]
    num_rows = max(1, _VALUES_AT_ONCE // max(1, math.prod(shape)))

    def whole(*arrays):
        result = np.empty([len(arrays[0]), *shape], dtype.as_numpy_dtype)
        for start in range(0, len(result), num_rows):
            rows = slice(start, start + num_rows)
            result[rows] = function(*(array[rows] for array in arrays))
        return result

    result = tf.numpy_function(whole, inputs, dtype, stateful=False)
    return tf.ensure_shape(result, [inputs[0].shape[0], *shape])
