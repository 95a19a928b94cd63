"""Noise of each value of an image, whose 256 levels become others by chance.

What such noise does is a table: the probabilities of each new level, given the
old one. Numbers are drawn from the table, and need no logarithms or loops.
"""

import math

import numpy as np
import tensorflow as tf

from caltrain_tf.data.corruptions.alias import alias_table
from caltrain_tf.data.corruptions.alias import choose

_LEVELS = np.arange(256)
_erf = np.vectorize(math.erf, otypes=[float])
_log_factorial = np.vectorize(lambda n: math.lgamma(n + 1), otypes=[float])


def gaussian_noise(pixels, draws, scale):
    """Adds normal noise of standard deviation `scale`; white is 1."""
    return _draw(pixels, draws, _normal(_LEVELS, 255 * scale))


def shot_noise(pixels, draws, photons):
    """Counts photons: Poisson noise, where white is `photons` of them."""
    counts = np.arange(photons)
    rates = np.maximum(_LEVELS / 255 * photons, 1e-12)[:, np.newaxis]
    logs = counts * np.log(rates) - rates - _log_factorial(counts)
    up_to = np.cumsum(np.exp(logs), axis=1)
    # Level k and above are k / 255 of all photons and more.
    least = -(-_LEVELS[1:] * photons // 255)
    return _draw(pixels, draws, up_to[:, least - 1])


def impulse_noise(pixels, draws, amount):
    """Sets a share `amount` of the values to black or white."""
    stays = _LEVELS[:, np.newaxis] < _LEVELS[1:]
    return _draw(pixels, draws, (1 - amount) * stays + amount / 2)


def speckle_noise(pixels, draws, scale):
    """Multiplies by normal noise around 1."""
    return _draw(pixels, draws, _normal(_LEVELS, scale * _LEVELS))


def _normal(means, scales):
    """Chances to be below the levels 1 to 255, `(256, 255)`."""
    gaps = _LEVELS[1:] - means[:, np.newaxis]
    scales = np.maximum(np.broadcast_to(scales, [256]), 1e-9)[:, np.newaxis]
    return (1 + _erf(gaps / (scales * math.sqrt(2)))) / 2


def _draw(pixels, draws, chances_below):
    """Draws new levels.

    Args:
        pixels: uint8.
        draws: `Draws`.
        chances_below: `(256, 255)`: of each old level, the probability that
            the new one is below 1, 2, ..., 255.
    """
    table = alias_table(
        np.diff(chances_below, axis=1, prepend=0.0, append=1.0)
    )
    shape = pixels.shape[1:]

    def new_levels(bits, pixels):
        return choose(table, pixels, bits.reshape(pixels.shape))

    return draws.from_bits(
        new_levels, math.prod(shape), [pixels], shape, tf.uint8
    )
