"""What storing an image does: large pixels and JPEG."""

import numpy as np
import tensorflow as tf

from caltrain_tf.data.corruptions import separable
from caltrain_tf.data.corruptions.rounding import nearest

# Turns of a loop cost as much as the files of small images.
_IMAGES_A_TURN = 16


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


def jpeg_compression(pixels, draws, quality):
    """Encodes images as JPEG, and decodes them.

    Args:
        pixels: uint8 `(batch, size, size, 3)`.
        draws: `Draws`, of which there are none.
        quality: Of the files.
    """
    return _through_files(pixels, quality).numpy()


@tf.function(
    input_signature=[
        tf.TensorSpec([None, None, None, 3], tf.uint8),
        tf.TensorSpec([], tf.int32),
    ]
)
def _through_files(pixels, quality):
    def through_file(pixels):
        encoded = tf.raw_ops.EncodeJpegVariableQuality(
            images=pixels, quality=quality
        )
        return tf.io.decode_jpeg(encoded, 3, dct_method="INTEGER_ACCURATE")

    count, *size = tf.unstack(tf.shape(pixels))
    # The last turn is filled up with black images.
    missing = -count % _IMAGES_A_TURN
    pixels = tf.pad(pixels, [[0, missing]] + 3 * [[0, 0]])
    turns = tf.map_fn(
        lambda few: tf.stack([*map(through_file, tf.unstack(few))]),
        tf.reshape(pixels, [-1, _IMAGES_A_TURN, *size]),
    )
    return tf.reshape(turns, [-1, *size])[:count]
