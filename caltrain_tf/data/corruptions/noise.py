"""Noise: Gaussian, shot, impulse and speckle noise.

Noise replaces each value of an image, one of 256 levels, by a random level. It
is described by a table with the probabilities of each new level given the old
one. New levels of any distribution are drawn from its table.
"""

import functools
import math

import numpy as np

from caltrain_tf.data.corruptions import core

_LEVELS = np.arange(256)
_SIZE = 256
_erf = np.vectorize(math.erf, otypes=[float])
_log_factorial = np.vectorize(lambda n: math.lgamma(n + 1), otypes=[float])


@core.corruption(
    cifar=((0.04,), (0.06,), (0.08,), (0.09,), (0.1,)),
    imagenet=((0.08,), (0.12,), (0.18,), (0.26,), (0.38,)),
    takes="pixels",
)
def gaussian_noise(pixels, draws, scale):
    """Adds normal noise with standard deviation `scale`, where white is 1."""
    return _draw(_gaussian_chances, scale, pixels, draws)


@core.corruption(
    cifar=((500,), (250,), (100,), (75,), (50,)),
    imagenet=((60,), (25,), (12,), (5,), (3,)),
    takes="pixels",
)
def shot_noise(pixels, draws, photons):
    """Applies Poisson noise, where white is an average of `photons` photons."""
    return _draw(_poisson_chances, photons, pixels, draws)


@core.corruption(
    cifar=((0.01,), (0.02,), (0.03,), (0.05,), (0.07,)),
    imagenet=((0.03,), (0.06,), (0.09,), (0.17,), (0.27,)),
    takes="pixels",
)
def impulse_noise(pixels, draws, amount):
    """Sets a fraction `amount` of the values to black or white."""
    return _draw(_impulse_chances, amount, pixels, draws)


@core.corruption(
    cifar=((0.06,), (0.1,), (0.12,), (0.16,), (0.2,)),
    imagenet=((0.15,), (0.2,), (0.35,), (0.45,), (0.6,)),
    takes="pixels",
)
def speckle_noise(pixels, draws, scale):
    """Multiplies by normal noise with mean 1 and standard deviation `scale`."""
    return _draw(_speckle_chances, scale, pixels, draws)


def _draw(chances, strength, pixels, draws):
    return choose(
        _table(chances, strength), pixels, draws.bits(pixels.shape[1:])
    )


@functools.lru_cache(maxsize=16)
def _table(chances, strength):
    """Returns the alias table of a noise.

    Args:
        chances: A function of the strength. It returns, for each old level, the
            probabilities that the new level is below 1, 2, ..., 255.
        strength: The strength of the noise.
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
    # A level of at least k takes at least k / 255 of the photons.
    fewest = -(-_LEVELS[1:] * photons // 255)
    return up_to[:, fewest - 1]


def _impulse_chances(amount):
    is_below = _LEVELS[:, np.newaxis] < _LEVELS[1:]
    return (1 - amount) * is_below + amount / 2


def alias_table(probabilities):
    """Prepares 256 distributions over 256 outcomes for `choose`.

    A distribution is divided into 256 parts of equal probability with at most
    two outcomes each: the part's own outcome and its alias (Walker, "An
    efficient method for generating discrete random variables with general
    distributions", 1977).

    Args:
        probabilities: `(256, 256)`, rows that sum to 1.

    Returns:
        uint32 `(65536,)`: for each part, the upper 24 bits hold the share of
        its own outcome and the lower 8 bits hold its alias.
    """
    weights = np.asarray(probabilities, float) * _SIZE
    row = np.arange(_SIZE)
    heavy = weights > 1
    lights = np.argsort(heavy, axis=1, kind="stable")
    heavies = np.argsort(~heavy, axis=1, kind="stable")
    num_heavy = heavy.sum(axis=1)
    num_light = _SIZE - num_heavy
    shares = np.ones((_SIZE, _SIZE))
    aliases = np.tile(row, (_SIZE, 1))
    light, big = np.zeros((2, _SIZE), int)
    # Remaining weight of the current heavy outcome, in parts.
    rest = weights[row, heavies[:, 0]]
    for _ in range(_SIZE):
        is_last = big >= num_heavy - 1
        # The heavy outcome fills up the part of a light outcome. If less than a
        # part is left of the heavy outcome, the next one fills up its part.
        fills = (light < num_light) & ((rest > 1) | is_last)
        following = heavies[row, np.minimum(big + 1, _SIZE - 1)]
        part = np.where(
            fills,
            lights[row, np.minimum(light, _SIZE - 1)],
            heavies[row, np.minimum(big, _SIZE - 1)],
        )
        donor = np.where(fills, heavies[row, big], following)
        share = np.where(fills, weights[row, part], rest)
        full = ~fills & is_last
        shares[row, part] = np.where(full, 1.0, share)
        aliases[row, part] = np.where(full, part, donor)
        rest = np.where(
            fills, rest - (1 - share), rest + weights[row, following] - 1
        )
        light = light + fills
        big = np.minimum(big + ~fills, _SIZE - 1)
    # A part with a single outcome is its own alias.
    aliases = np.where(shares >= 1, row, aliases)
    levels = np.clip(np.round(shares * 2**24), 0, 2**24 - 1)
    return (levels.astype(np.uint32) << 8 | aliases.astype(np.uint32)).ravel()


def choose(table, rows, bits):
    """Draws from the distributions of a table.

    Args:
        table: Table returned by `alias_table`.
        rows: Index of the distribution for each draw, uint8 of any shape.
        bits: Random uint32 of the same shape.

    Returns:
        Outcomes, uint8 of the same shape. Probabilities are exact to 24 bits.
    """
    parts = bits.astype(np.uint8)
    # 256 * row + part.
    places = rows.astype(np.uint16)
    places <<= np.uint16(8)
    places |= parts
    entries = table.take(places, mode="wrap")
    # The upper 24 bits decide. There is no branch, because its outcome could
    # not be predicted.
    outcomes = entries.astype(np.uint8)
    outcomes ^= (outcomes ^ parts) * (bits < entries)
    return outcomes
