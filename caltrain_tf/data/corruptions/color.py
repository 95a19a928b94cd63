"""Changes of brightness, contrast and saturation."""

import tensorflow as tf


def brightness(images, draws, amount):
    """Raises the value of hue, saturation and value."""
    value = tf.reduce_max(images, axis=-1, keepdims=True)
    raised = tf.minimum(value + amount, 1.0)
    # Hue and saturation stay: all channels grow by the same factor, and
    # black becomes grey.
    grown = images * tf.math.divide_no_nan(raised, value)
    return tf.where(value > 0, grown, raised)


def contrast(images, draws, factor):
    """Draws each channel to its mean over the image."""
    means = tf.reduce_mean(images, axis=(1, 2), keepdims=True)
    return (images - means) * factor + means


def saturate(images, draws, factor, offset):
    """Scales and shifts the saturation of hue, saturation and value."""
    value = tf.reduce_max(images, axis=-1, keepdims=True)
    gap = value - images
    chroma = tf.reduce_max(gap, axis=-1, keepdims=True)
    saturation = tf.math.divide_no_nan(chroma, value)
    wanted = tf.clip_by_value(saturation * factor + offset, 0.0, 1.0)
    # Where there is no hue, 0 is taken for it, which is red.
    hue = tf.where(chroma > 0, tf.math.divide_no_nan(gap, chroma), [0, 1.0, 1])
    return value * (1 - wanted * hue)
