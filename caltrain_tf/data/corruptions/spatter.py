"""Spatter: drops of water or mud on the lens."""

import functools

import numpy as np
import tensorflow as tf

from caltrain_tf.data.corruptions import separable
from caltrain_tf.data.corruptions.edges import distance_to_edges
from caltrain_tf.data.corruptions.edges import filter_3x3

_WATER = np.float32([175, 238, 238]).reshape(3, 1, 1) / 255
_MUD = np.float32([63, 42, 20]).reshape(3, 1, 1) / 255
# Light from one corner.
_RELIEF = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])
_MEAN = np.full((3, 3), 1 / 9)


def spatter(images, draws, mean, scale, sigma, threshold, amount, liquid):
    """Covers parts of an image with a liquid.

    Args:
        images: `(batch, 3, size, size)`, in [0, 1].
        draws: `Draws`.
        mean: Of the normal noise that the drops are made of.
        scale: Its standard deviation.
        sigma: Of the Gaussian that smooths it, in pixels.
        threshold: What is below is dry.
        amount: The opacity of water; for mud, the blur of its edge in pixels.
        liquid: `"water"` or `"mud"`.
    """
    size = images.shape[-1]
    depth = draws.normal([1, size, size], mean, scale)
    depth = separable.transform(depth, separable.blur_matrix(size, sigma))
    depth *= depth >= threshold
    if liquid == "mud":
        matrix = separable.blur_matrix(size, amount)
        wet = (depth > threshold).astype(np.float32)
        cover = separable.transform(wet, matrix)
        cover *= cover >= 0.8
        return images * (1 - cover) + cover * _MUD
    drops = _compiled_drops(size)(np.moveaxis(depth, 1, -1)).numpy()
    return images + np.float32(amount) * np.moveaxis(drops, -1, 1) * _WATER


@functools.lru_cache(maxsize=4)
def _compiled_drops(size):
    signature = [tf.TensorSpec([None, size, size, 1], tf.float32)]
    return tf.function(_drops, input_signature=signature, autograph=False)


def _drops(depth):
    """Returns how bright water is: a relief of the drops, up to 1."""
    levels = tf.floor(tf.clip_by_value(depth, 0.0, 1.0) * 255)
    distance = tf.minimum(distance_to_edges(levels, 50, 150), 20.0)
    distance = _equalize(_whole_means(distance))
    relief = tf.clip_by_value(filter_3x3(distance, _RELIEF), 0.0, 255.0)
    relief = levels * tf.round(filter_3x3(relief, _MEAN))
    highest = tf.reduce_max(relief, axis=(1, 2), keepdims=True)
    return tf.math.divide_no_nan(relief, highest)


def _whole_means(images):
    """Returns means over 3 x 3 pixels, cut off to the number below."""
    # Above the rounding errors: a whole number stays what it is.
    return tf.floor(filter_3x3(images, _MEAN) + 1e-5)


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
