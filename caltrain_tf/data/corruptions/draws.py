"""Random numbers of an image that depend on nothing but its place."""

import math

import numpy as np

# The generator "SplitMix64" of Steele, Lea and Flood, 2014: a counter that goes
# up by the golden ratio, and a hash of it.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIXERS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


class Draws:
    """Random arrays for a batch, each row from its image's own seed.

    What an image gets depends on the numbers below and on the order of the
    calls, not on the batch that it comes in. Numbers are hashes of seed, place
    and index, since NumPy's own generators have one seed each, and one an image
    costs more than most corruptions.

    Args:
        places: The images' places in their split, `(batch,)`.
        set_number: The number of the corrupted set, below 2**58.
    """

    def __init__(self, places, set_number):
        """Starts at the first draw."""
        self._places = np.asarray(places).astype(np.uint64)
        self._set_number = set_number
        self._num_draws = 0

    def of_rows(self, rows):
        """Returns those of some of the images, from the first draw on."""
        return Draws(self._places[rows], self._set_number)

    def bits(self, shape):
        """Returns 32 random bits each, uint32 `(batch, *shape)`."""
        number = (self._set_number << 6) + self._num_draws
        self._num_draws += 1
        count = math.prod(shape)
        # Two numbers a word.
        steps = np.arange(1, -(-count // 2) + 1, dtype=np.uint64) * _GOLDEN
        start = _mix(np.full(1, number, np.uint64) + _GOLDEN)
        keys = _mix(self._places + start)
        words = _mix(keys[:, np.newaxis] + steps)
        return words.view(np.uint32)[:, :count].reshape(-1, *shape)

    def uniform(self, shape, low=0.0, high=1.0):
        """Returns float32 values in [low, high), `(batch, *shape)`."""
        values = _levels(self.bits(shape))
        values *= np.float32((high - low) * 2.0**-24)
        values += np.float32(low)
        return values

    def normal(self, shape, mean=0.0, scale=1.0):
        """Returns float32 values, `(batch, *shape)`."""
        count = math.prod(shape)
        half = -(-count // 2)
        # Box and Muller: two of each pair.
        values = _levels(self.bits([2, half]))
        radius = values[:, 0] + np.float32(0.5)
        radius *= np.float32(2.0**-24)
        np.log(radius, out=radius)
        radius *= np.float32(-2)
        np.sqrt(radius, out=radius)
        radius *= np.float32(scale)
        angle = values[:, 1] * np.float32(2 * math.pi * 2.0**-24)
        np.cos(angle, out=values[:, 0])
        np.sin(angle, out=values[:, 1])
        values *= radius[:, np.newaxis]
        values += np.float32(mean)
        values = values.reshape(len(values), -1)[:, :count]
        return values.reshape(-1, *shape)

    def integers(self, shape, low, high):
        """Returns int32 values from `low` to `high` (included)."""
        values = self.bits(shape)
        values >>= np.uint32(16)
        values *= np.uint32(high - low + 1)
        values >>= np.uint32(16)
        values = values.view(np.int32)
        values += np.int32(low)
        return values


def _mix(words):
    """Hashes 64-bit words in place."""
    shifted = np.empty_like(words)
    for shift, factor in _MIXERS:
        words ^= np.right_shift(words, np.uint64(shift), out=shifted)
        words *= np.uint64(factor)
    words ^= np.right_shift(words, np.uint64(31), out=shifted)
    return words


def _levels(bits):
    """Returns integers below 2**24, as many as float32 has room for."""
    bits >>= np.uint32(8)
    return bits.astype(np.float32)
