"""Spatter: drops of water or mud on the lens."""

import numpy as np
import tensorflow as tf

from caltrain_tf.data.corruptions import separable
from caltrain_tf.data.corruptions.edges import distance_to_edges
from caltrain_tf.data.corruptions.edges import filter_3x3

_WATER = (175 / 255, 238 / 255, 238 / 255)
_MUD = (63 / 255, 42 / 255, 20 / 255)
# Light from one corner.
_RELIEF = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])
_MEAN = np.full((3, 3), 1 / 9)


def spatter(images, draws, mean, scale, sigma, threshold, amount, liquid):
    """Covers parts of an image with a liquid.

    Args:
        images: `(batch, size, size, 3)`, in [0, 1].
        draws: `Draws`.
        mean: Of the normal noise that the drops are made of.
        scale: Its standard deviation.
        sigma: Of the Gaussian that smooths it, in pixels.
        threshold: What is below is dry.
        amount: The opacity of water; for mud, the blur of its edge in pixels.
        liquid: `"water"` or `"mud"`.
    """
    size = images.shape[1]
    depth = draws.normal([size, size, 1], mean, scale)
    depth = separable.transform(depth, separable.blur_matrix(size, sigma))
    depth = tf.where(depth < threshold, tf.zeros_like(depth), depth)
    if liquid == "mud":
        matrix = separable.blur_matrix(size, amount)
        wet = tf.cast(depth > threshold, tf.float32)
        cover = separable.transform(wet, matrix)
        cover = tf.where(cover < 0.8, tf.zeros_like(cover), cover)
        return images * (1 - cover) + cover * _MUD
    return images + amount * _drops(depth) * _WATER


def _drops(depth):
    """Returns how bright water is: a relief of the drops, up to 1."""
    levels = tf.floor(tf.clip_by_value(depth, 0.0, 1.0) * 255)
    distance = tf.minimum(distance_to_edges(levels, 50, 150), 20.0)
    distance = _equalize(tf.floor(filter_3x3(distance, _MEAN)))
    relief = tf.clip_by_value(filter_3x3(distance, _RELIEF), 0.0, 255.0)
    relief = levels * tf.round(filter_3x3(relief, _MEAN))
    highest = tf.reduce_max(relief, axis=(1, 2), keepdims=True)
    return tf.math.divide_no_nan(relief, highest)


def _equalize(images):
    """Spreads the levels of each image `(batch, size, size, 1)` evenly."""
    shape = tf.shape(images)
    levels = tf.reshape(tf.cast(images, tf.int32), [shape[0], -1])
    counts = tf.math.bincount(
        levels, minlength=256, maxlength=256, axis=-1, dtype=tf.float32
    )
    up_to = tf.cumsum(counts, axis=-1)
    # Of the lowest level that is there.
    least = tf.reduce_min(levels, axis=-1, keepdims=True)
    lowest = tf.gather(counts, least, axis=1, batch_dims=1)
    total = up_to[:, -1:]
    table = tf.round(
        tf.math.divide_no_nan((up_to - lowest) * 255, total - lowest)
    )
    even = tf.gather(table, levels, axis=1, batch_dims=1)
    flat = tf.where(total > lowest, even, tf.cast(levels, tf.float32))
    return tf.reshape(flat, shape)
