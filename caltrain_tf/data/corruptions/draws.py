"""Random numbers of an image that depend on nothing but its place."""

import tensorflow as tf

from caltrain_tf.data import stateless

# Fixed: what TensorFlow picks by itself depends on the device.
_ALGORITHM = "philox"


class Draws:
    """Random tensors for a batch, each row from its image's own seed.

    What an image gets depends on the numbers below and on the order of the
    calls, not on the batch that it comes in.

    Args:
        places: The images' places in their split, `(batch,)`.
        set_number: The number of the corrupted set.
    """

    def __init__(self, places, set_number):
        """Starts at the first draw."""
        self._places = tf.cast(places, tf.int64)
        self._set_number = set_number
        self._num_draws = 0

    def uniform(self, shape, low=0.0, high=1.0):
        """Returns float32 values in [low, high), `(batch, *shape)`."""
        return self._draw(
            lambda seed: tf.random.stateless_uniform(
                shape, seed, low, high, alg=_ALGORITHM
            )
        )

    def normal(self, shape, mean=0.0, scale=1.0):
        """Returns float32 values, `(batch, *shape)`."""
        return self._draw(
            lambda seed: tf.random.stateless_normal(
                shape, seed, mean, scale, alg=_ALGORITHM
            )
        )

    def integers(self, shape, low, high):
        """Returns int32 values from `low` to `high` (included)."""
        return self._draw(
            lambda seed: stateless.integers(shape, low, high, seed),
            dtype=tf.int32,
        )

    def poisson(self, rates):
        """Returns counts as float32, of the rates `(batch, ...)`."""
        return self._draw(
            lambda seed, rate: tf.random.stateless_poisson(
                rate.shape, seed, rate, tf.float32
            ),
            rates,
        )

    def _draw(self, function, *rows, dtype=tf.float32):
        number = (self._set_number << 6) + self._num_draws
        self._num_draws += 1
        numbers = tf.fill(tf.shape(self._places), tf.constant(number, tf.int64))
        seeds = tf.stack([numbers, self._places], axis=1)
        # The stateless functions take one seed each.
        return tf.map_fn(
            lambda row: function(*row),
            (seeds, *rows),
            fn_output_signature=dtype,
        )
