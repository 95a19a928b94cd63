"""Motion blur: a streak in one direction, another one for each image."""

import math

import numpy as np
import tensorflow as tf

from caltrain_tf.data.corruptions import separable
from caltrain_tf.data.corruptions.rounding import nearest
from caltrain_tf.data.corruptions.rows import by_rows

# Of a level: what is lighter than this at the streak's end is left out.
_NEGLIGIBLE = 1e-3 / 255


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
    weights = np.exp(-0.5 * (np.arange(2 * radius + 1) / sigma) ** 2)
    weights = (weights / weights.sum()).astype(np.float32)
    # From the end: what all later ones weigh together.
    weights = weights[np.cumsum(weights[::-1])[::-1] > _NEGLIGIBLE]
    taps = np.arange(len(weights), dtype=np.float32)

    def smear(images, angles):
        radians = angles[:, np.newaxis] * np.float32(math.pi / 180)
        down = np.ceil(taps * np.sin(radians) - np.float32(0.5)).astype(int)
        right = np.ceil(taps * np.cos(radians) - np.float32(0.5)).astype(int)
        return _weighted_sum(images, down, right, weights)

    blurred = by_rows(smear, [images, angles], images.shape[1:], tf.float32)
    return nearest(blurred)


def _weighted_sum(images, down, right, weights):
    """Sums moved images.

    Args:
        images: `(rows, size, size, channels)`.
        down: By how many pixels, `(rows, taps)`.
        right: The same.
        weights: `(taps,)`.
    """
    count, size, _, channels = images.shape
    padded = images
    for axis, moves in ((1, down), (2, right)):
        places = np.arange(moves.min(), moves.max() + size)
        places = separable.fold(places, size, "edge")
        padded = np.take(padded, places, axis=axis)
    # All parts of an image's size, without copies: (image, first row, first
    # column, row, values of a row).
    image_step, row_step, column_step, step = padded.strides
    heights, widths = np.subtract(padded.shape[1:3], size - 1)
    parts = np.lib.stride_tricks.as_strided(
        padded,
        (count, heights, widths, size, size * channels),
        (image_step, row_step, column_step, row_step, step),
        writeable=False,
    )
    row = np.arange(count)
    first_rows, first_columns = down - down.min(), right - right.min()
    result = np.zeros(parts[:, 0, 0].shape, np.float32)
    for tap, weight in enumerate(weights):
        moved = parts[row, first_rows[:, tap], first_columns[:, tap]]
        moved *= weight
        result += moved
    return result.reshape(images.shape)
