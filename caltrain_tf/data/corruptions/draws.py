"""Random numbers of an image that depend on nothing but its place."""

import math

import numpy as np
import tensorflow as tf

# Odd numbers of a well-mixing 32-bit hash ("lowbias32" of C. Wellons).
_MIXERS = ((16, 0x7FEB352D), (15, 0x846CA68B))
_GOLDEN = 0x9E3779B9


class Draws:
    """Random tensors for a batch, each row from its image's own seed.

    What an image gets depends on the numbers below and on the order of the
    calls, not on the batch that it comes in. Numbers are hashes of seed, place
    and index, since TensorFlow's own functions take one seed a call, and a
    call an image costs more than most corruptions.

    Args:
        places: The images' places in their split, `(batch,)`.
        set_number: The number of the corrupted set.
    """

    def __init__(self, places, set_number):
        """Starts at the first draw."""
        self._places = tf.cast(places, tf.uint32)
        self._set_number = set_number
        self._num_draws = 0

    def uniform(self, shape, low=0.0, high=1.0):
        """Returns float32 values in [low, high), `(batch, *shape)`."""
        count = math.prod(shape)
        values = self._levels(count) * 2.0**-24
        return _shaped(values * (high - low) + low, shape)

    def normal(self, shape, mean=0.0, scale=1.0):
        """Returns float32 values, `(batch, *shape)`."""
        count = math.prod(shape)
        half = -(-count // 2)
        # Box and Muller: two of each pair.
        values = self._levels(2 * half)
        radius = tf.sqrt(-2 * tf.math.log((values[:, :half] + 0.5) * 2.0**-24))
        angle = values[:, half:] * (2 * math.pi * 2.0**-24)
        pairs = (radius * tf.cos(angle), radius * tf.sin(angle))
        values = tf.concat(pairs, axis=1)[:, :count]
        return _shaped(values * scale + mean, shape)

    def integers(self, shape, low, high):
        """Returns int32 values from `low` to `high` (included)."""
        span = high - low + 1
        values = tf.floor(self.uniform(shape) * float(span))
        return tf.cast(values, tf.int32) + low

    def poisson(self, rates):
        """Returns counts as float32, of the rates `(batch, ...)`."""
        seeds = tf.cast(self._bits(2), tf.int64)
        return tf.map_fn(
            lambda row: tf.random.stateless_poisson(
                row[1].shape, row[0], row[1], tf.float32
            ),
            (seeds, rates),
            fn_output_signature=tf.float32,
        )

    def _levels(self, count):
        """Returns integers below 2**24, as many as float32 has room for."""
        return tf.cast(_shift(self._bits(count), 8), tf.float32)

    def _bits(self, count):
        """Returns 32 random bits each, `(batch, count)`."""
        number = (self._set_number << 6) + self._num_draws
        self._num_draws += 1
        # All of it counts, also where it has more than 32 bits.
        low, high = number & 0xFFFFFFFF, number >> 32
        keys = _mix(self._places + _word(high * _GOLDEN))
        keys = _mix(tf.bitwise.bitwise_xor(keys, _word(low)))[:, tf.newaxis]
        indices = np.arange(count, dtype=np.uint64) * _GOLDEN
        indices = tf.constant(indices.astype(np.uint32))
        return _mix(_mix(tf.bitwise.bitwise_xor(indices, keys)) + keys)


def _mix(bits):
    for shift, factor in _MIXERS:
        bits = tf.bitwise.bitwise_xor(bits, _shift(bits, shift)) * _word(factor)
    return tf.bitwise.bitwise_xor(bits, _shift(bits, 16))


def _shift(bits, count):
    return tf.bitwise.right_shift(bits, _word(count))


def _word(number):
    return tf.constant(number & 0xFFFFFFFF, tf.uint32)


def _shaped(values, shape):
    return tf.reshape(values, [-1, *shape])
