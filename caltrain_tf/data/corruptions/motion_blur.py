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
    size, channels = images.shape[2:]
    pixels = tf.reshape(images, [-1, size * size, channels])
    taps = np.arange(2 * math.ceil(radius) + 1)
    weights = np.exp(-0.5 * (taps / sigma) ** 2)
    weights /= weights.sum()
    weights = tf.constant(weights, tf.float32)
    radians = angles * (math.pi / 180)

    def moved_places(tap, direction):
        shift = tf.math.ceil(tf.cast(tap, tf.float32) * direction - 0.5)
        places = tf.range(size) + tf.cast(shift[:, tf.newaxis], tf.int32)
        return separable.fold(places, size, "edge")

    def add(tap, blurred):
        rows = moved_places(tap, tf.sin(radians))[:, :, tf.newaxis]
        columns = moved_places(tap, tf.cos(radians))[:, tf.newaxis]
        places = tf.reshape(rows * size + columns, [-1, size * size])
        moved = tf.gather(pixels, places, axis=1, batch_dims=1)
        return tap + 1, blurred + weights[tap] * moved

    _, blurred = tf.while_loop(
        lambda tap, blurred: tap < len(taps), add, (0, tf.zeros_like(pixels))
    )
    return nearest(tf.reshape(blurred, [-1, size, size, channels]))
