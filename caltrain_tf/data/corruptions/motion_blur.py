"""Motion blur: a streak in one direction, another one for each image."""

import math

import numpy as np
import tensorflow as tf

from caltrain_tf.data.corruptions import separable
from caltrain_tf.data.corruptions.rounding import nearest


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
    size = images.shape[1]
    taps = np.arange(2 * math.ceil(radius) + 1)
    weights = np.exp(-0.5 * (taps / sigma) ** 2)
    weights /= weights.sum()
    weights = tf.constant(weights, tf.float32)
    radians = angles * (math.pi / 180)
    directions = ((1, tf.sin(radians)), (2, tf.cos(radians)))

    def add(tap, blurred):
        moved = images
        for axis, direction in directions:
            shift = tf.math.ceil(tf.cast(tap, tf.float32) * direction - 0.5)
            pixels = tf.range(size) + tf.cast(shift[:, tf.newaxis], tf.int32)
            pixels = separable.fold(pixels, size, "edge")
            moved = tf.gather(moved, pixels, axis=axis, batch_dims=1)
        return tap + 1, blurred + weights[tap] * moved

    _, blurred = tf.while_loop(
        lambda tap, blurred: tap < len(taps), add, (0, tf.zeros_like(images))
    )
    return nearest(blurred)
