"""Random numbers of an image that depend on nothing but its place."""

import math

import numpy as np
import tensorflow as tf

from caltrain_tf.data.corruptions.rows import by_rows

# The generator "SplitMix64" of Steele, Lea and Flood, 2014: a counter that goes
# up by the golden ratio, and a hash of it.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIXERS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


class Draws:
    """Random tensors for a batch, each row from its image's own seed.

    What an image gets depends on the numbers below and on the order of the
    calls, not on the batch that it comes in. Numbers are hashes of seed, place
    and index, since the libraries' own functions take one seed a call, and a
    call an image costs more than most corruptions.

    Args:
        places: The images' places in their split, `(batch,)`.
        set_number: The number of the corrupted set.
    """

    def __init__(self, places, set_number):
        """Starts at the first draw."""
        self._places = tf.convert_to_tensor(places)
        self._set_number = set_number
        self._num_draws = 0

    def uniform(self, shape, low=0.0, high=1.0):
        """Returns float32 values in [low, high), `(batch, *shape)`."""
        count = math.prod(shape)
        scale, low = np.float32((high - low) * 2.0**-24), np.float32(low)

        def values(bits):
            values = _levels(bits)
            values *= scale
            values += low
            return values.reshape(-1, *shape)

        return self.from_bits(values, count, [], shape, tf.float32)

    def normal(self, shape, mean=0.0, scale=1.0):
        """Returns float32 values, `(batch, *shape)`."""
        count = math.prod(shape)
        half = -(-count // 2)
        mean, scale = np.float32(mean), np.float32(scale)

        def values(bits):
            # Box and Muller: two of each pair.
            first, second = _levels(bits[:, :half]), _levels(bits[:, half:])
            first = (first + np.float32(0.5)) * np.float32(2.0**-24)
            radius = scale * np.sqrt(np.float32(-2) * np.log(first))
            angle = second * np.float32(2 * math.pi * 2.0**-24)
            values = np.concatenate(
                (radius * np.cos(angle), radius * np.sin(angle)), axis=1
            )
            return (values[:, :count] + mean).reshape(-1, *shape)

        return self.from_bits(values, 2 * half, [], shape, tf.float32)

    def integers(self, shape, low, high):
        """Returns int32 values from `low` to `high` (included)."""
        count, span = math.prod(shape), high - low + 1

        def values(bits):
            values = (bits >> np.uint32(16)) * np.uint32(span) >> np.uint32(16)
            return (values.astype(np.int32) + low).reshape(-1, *shape)

        return self.from_bits(values, count, [], shape, tf.int32)

    def from_bits(self, function, count, inputs, shape, dtype):
        """Computes something random with NumPy.

        Args:
            function: From `bits`, random uint32 `(rows, count)`, and rows of
                the inputs to those of the result; see `by_rows`.
            count: How many random numbers an image needs.
            inputs: Tensors `(batch, ...)`.
            shape: Of a row of the result.
            dtype: Of the result.
        """
        number = (self._set_number << 6) + self._num_draws
        self._num_draws += 1
        start = _mix(np.full(1, number, np.uint64) + _GOLDEN)
        # Two numbers of 32 bits a word.
        steps = np.arange(1, -(-count // 2) + 1, dtype=np.uint64) * _GOLDEN

        def rows(places, *arrays):
            keys = _mix(places.astype(np.uint64) + start)
            words = _mix(keys[:, np.newaxis] + steps)
            bits = words.view(np.uint32)[:, :count]
            return function(bits, *arrays)

        return by_rows(rows, [self._places, *inputs], shape, dtype)


def _mix(words):
    """Hashes 64-bit words in place."""
    for shift, factor in _MIXERS:
        words ^= words >> np.uint64(shift)
        words *= np.uint64(factor)
    words ^= words >> np.uint64(31)
    return words


def _levels(bits):
    """Returns integers below 2**24, as many as float32 has room for."""
    return (bits >> np.uint32(8)).astype(np.float32)
