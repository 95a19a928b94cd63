"""What storing an image does: large pixels and JPEG."""

import functools

import numpy as np
import tensorflow as tf

from caltrain_tf.data.corruptions import separable
from caltrain_tf.data.corruptions.rounding import nearest


def pixelate(images, draws, factor):
    """Shrinks an image and enlarges it again, with a box filter."""
    count, channels, size, _ = images.shape
    small = int(size * factor)
    matrix = separable.box_matrix(size, small)
    # Image libraries keep 256 levels after each step.
    images = nearest(images @ matrix.T.copy())
    images = nearest(matrix @ images)
    # Enlarging takes pixels as they are.
    nearby = separable.box_matrix(small, size).argmax(axis=1)
    places = nearby[:, np.newaxis] * small + nearby
    images = images.reshape(count, channels, small * small)
    return images.take(places, axis=2)


def jpeg_compression(pixels, quality):
    """Encodes images as JPEG, and decodes them.

    Args:
        pixels: A uint8 tensor, `(batch, size, size, 3)`.
        quality: Of the files.
    """
    return _through_files(quality)(pixels)


@functools.lru_cache(maxsize=8)
def _through_files(quality):
    def through_file(pixels):
        encoded = tf.io.encode_jpeg(pixels, quality=quality)
        decoded = tf.io.decode_jpeg(encoded, dct_method="INTEGER_ACCURATE")
        return tf.ensure_shape(decoded, pixels.shape)

    return tf.function(
        lambda pixels: tf.map_fn(through_file, pixels), reduce_retracing=True
    )
