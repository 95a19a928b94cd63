"""Noise of each value of an image, whose 256 levels become others by chance.

What such noise does is a table: the probabilities of each new level, given the
old one. New levels are drawn from it, whatever the distribution.
"""

import functools
import math

import numpy as np

from caltrain_tf.data.corruptions.alias import alias_table
from caltrain_tf.data.corruptions.alias import choose

_LEVELS = np.arange(256)
_erf = np.vectorize(math.erf, otypes=[float])
_log_factorial = np.vectorize(lambda n: math.lgamma(n + 1), otypes=[float])


def gaussian_noise(pixels, draws, scale):
    """Adds normal noise of standard deviation `scale`; white is 1."""
    return _draw(_gaussian_chances, scale, pixels, draws)


def shot_noise(pixels, draws, photons):
    """Counts photons: Poisson noise, where white is `photons` of them."""
    return _draw(_poisson_chances, photons, pixels, draws)


def impulse_noise(pixels, draws, amount):
    """Sets a share `amount` of the values to black or white."""
    return _draw(_impulse_chances, amount, pixels, draws)


def speckle_noise(pixels, draws, scale):
    """Multiplies by normal noise around 1."""
    return _draw(_speckle_chances, scale, pixels, draws)


def _draw(chances, strength, pixels, draws):
    return choose(
        _table(chances, strength), pixels, draws.bits(pixels.shape[1:])
    )


@functools.lru_cache(maxsize=16)
def _table(chances, strength):
    """Returns the table of a noise.

    Args:
        chances: A function of the strength. Returns, for each old level, the
            probabilities that the new one is below 1, 2, ..., 255.
        strength: Its argument.
    """
    below = chances(strength)
    return alias_table(np.diff(below, axis=1, prepend=0.0, append=1.0))


def _gaussian_chances(scale):
    return _normal_chances(np.full(256, 255 * scale))


def _speckle_chances(scale):
    # Black stays black.
    return _normal_chances(np.maximum(scale * _LEVELS, 1e-9))


def _normal_chances(scales):
    gaps = _LEVELS[1:] - _LEVELS[:, np.newaxis]
    return (1 + _erf(gaps / (scales[:, np.newaxis] * math.sqrt(2)))) / 2


def _poisson_chances(photons):
    counts = np.arange(photons)
    rates = np.maximum(_LEVELS / 255 * photons, 1e-12)[:, np.newaxis]
    logs = counts * np.log(rates) - rates - _log_factorial(counts)
    up_to = np.cumsum(np.exp(logs), axis=1)
    # Level k or more are k / 255 of the photons or more.
    fewest = -(-_LEVELS[1:] * photons // 255)
    return up_to[:, fewest - 1]


def _impulse_chances(amount):
    is_below = _LEVELS[:, np.newaxis] < _LEVELS[1:]
    return (1 - amount) * is_below + amount / 2
