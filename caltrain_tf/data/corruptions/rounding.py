"""From numbers in [0, 1] to the 256 levels of a pixel."""

import tensorflow as tf

# Above the rounding errors of float32, below what makes a visible difference.
_TOLERANCE = 1e-4


def to_pixels(images):
    """Returns uint8 levels, cut off to the level below, as published."""
    levels = tf.clip_by_value(images, 0.0, 1.0) * 255 + _TOLERANCE
    return tf.cast(levels, tf.uint8)


def truncate(images):
    """Returns [0, 1] with only the 256 levels of `to_pixels`."""
    return tf.cast(to_pixels(images), tf.float32) / 255


def nearest(images):
    """Returns [0, 1] with only the 256 levels, the nearest ones."""
    levels = tf.clip_by_value(images, 0.0, 1.0) * 255 + _TOLERANCE
    return tf.floor(levels + 0.5) / 255
