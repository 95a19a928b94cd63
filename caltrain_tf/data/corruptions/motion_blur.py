"""Motion blur: a streak in one direction, another one for each image."""

import functools
import math

import numpy as np

from caltrain_tf.data.corruptions import separable
from caltrain_tf.data.corruptions.rounding import nearest

# In levels: what the end of a streak weighs that is left out.
_NEGLIGIBLE = 1e-3


def motion_blur(images, draws, radius, sigma):
    """Blurs along a line at a random angle within 45 degrees of level."""
    angles = draws.uniform([], -45.0, 45.0)
    return streak(images, angles, radius, sigma)


def streak(images, angles, radius, sigma):
    """Smears images to one side, as ImageMagick's motion blur does.

    The kernel is half of a Gaussian, from the pixel itself outwards, at the
    pixels nearest to a line. The result has the 256 levels of a pixel.

    Args:
        images: `(batch, size, size, channels)`, in [0, 1].
        angles: In degrees, `(batch,)`.
        radius: The line has `2 * radius + 1` pixels.
        sigma: Standard deviation of the Gaussian, in pixels.
    """
    weights = _weights(radius, sigma)
    radians = angles * np.float32(math.pi / 180)
    moves = np.stack([np.sin(radians), np.cos(radians)])[..., np.newaxis]
    moves = moves * np.arange(len(weights), dtype=np.float32)
    moves = np.ceil(moves - np.float32(0.5)).astype(int)
    return nearest(_sum_of_moved(images, *moves, weights))


@functools.lru_cache(maxsize=32)
def _weights(radius, sigma):
    weights = np.exp(-0.5 * (np.arange(2 * radius + 1) / sigma) ** 2)
    weights = (weights / weights.sum()).astype(np.float32)
    later = np.cumsum(weights[::-1])[::-1]
    return weights[later * 255 > _NEGLIGIBLE]


def _sum_of_moved(images, down, right, weights):
    """Returns a weighted sum of an image's moved copies.

    Args:
        images: `(batch, size, size, channels)`.
        down: By how many pixels, `(batch, taps)`.
        right: The same.
        weights: `(taps,)`.
    """
    _, size, _, channels = images.shape
    # No pixel moves less far than the first, which stays.
    margins = {
        axis: (-moves.min(), moves.max())
        for axis, moves in ((2, right), (1, down))
    }
    padded = separable.pad(images, margins, "edge")
    # All parts of an image's size, as views. A row of pixels is a run of
    # numbers: the longer it is, the less it costs to copy it.
    shape = [*np.subtract(padded.shape[1:3], size - 1), size, size * channels]
    parts = np.lib.stride_tricks.as_strided(
        padded,
        [len(images), *shape],
        [*padded.strides[:3], padded.strides[1], padded.strides[3]],
        writeable=False,
    )
    image = np.arange(len(images))
    down, right = down - down.min(), right - right.min()
    # The first copy has not moved.
    result = (images * weights[0]).reshape(len(images), *parts.shape[3:])
    for tap, weight in enumerate(weights[1:], start=1):
        moved = parts[image, down[:, tap], right[:, tap]]
        moved *= weight
        result += moved
    return result.reshape(images.shape)
