"""Random numbers that depend on nothing but (seed, epoch).

An epoch's order and augmentation are the same whatever ran before it, so that
a run that was interrupted sees the batches of one that was not.
"""

import tensorflow as tf

# A name for each use, so that no two share their numbers.
ORDER, SHIFT, FLIP, FILES, BLOCKS, CROP = range(6)
# Fixed: what TensorFlow picks by itself depends on the device.
_ALGORITHM = "philox"


def key(seed, epoch, purpose):
    """Returns the seed of a purpose in an epoch, for stateless functions."""
    # Whatever devices there are, the input pipeline runs on the host.
    with tf.device("CPU:0"):
        return fold(tf.constant([seed, epoch], tf.int64), purpose)


def fold(parent, number):
    """Returns the seed of item `number` under the seed `parent`."""
    return tf.random.fold_in(parent, number, alg=_ALGORITHM)


def integers(shape, low, high, seed):
    """Returns int32 values, uniform from `low` to `high` (included)."""
    return tf.random.stateless_uniform(
        shape, seed, low, high + 1, tf.int32, alg=_ALGORITHM
    )


def permutation(size, seed):
    """Returns the numbers 0 to `size` - 1 in random order, int32."""
    bits = tf.random.stateless_uniform(
        [size], seed, None, None, tf.int64, alg=_ALGORITHM
    )
    return tf.argsort(bits, stable=True)
