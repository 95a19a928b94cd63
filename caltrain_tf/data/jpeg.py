"""From an encoded ImageNet image to a square of pixels.

Only the part that is looked at is decoded. Crops and bicubic resizing are as
in Uncertainty Baselines; pixels are rounded to uint8, as a stored image's are.
"""

import tensorflow as tf

from caltrain_tf.data import stateless

# Of the shorter side, in an evaluation crop: 224 of 256 pixels.
_CENTRAL_FRACTION = 7 / 8


def random_crop(encoded, size, seed):
    """Decodes a random part of an image, and mirrors half of them.

    The part has 8 to 100% of the area and an aspect ratio of 3/4 to 4/3, and
    is resized to a square. Where ten tries find none (very long images), it
    is `central_crop`.

    Args:
        encoded: A scalar string, the JPEG file.
        size: Height and width of the result.
        seed: A seed for stateless functions, `(2,)`.

    Returns:
        uint8 `(size, size, 3)`.
    """
    shape = tf.image.extract_jpeg_shape(encoded)
    begin, extent, _ = tf.image.stateless_sample_distorted_bounding_box(
        shape,
        tf.constant([[[0.0, 0.0, 1.0, 1.0]]]),
        seed=stateless.fold(seed, 0),
        min_object_covered=0.0,
        aspect_ratio_range=(3 / 4, 4 / 3),
        area_range=(0.08, 1.0),
        max_attempts=10,
    )
    # The whole image is how the sampler says that it found nothing.
    window = tf.cond(
        tf.reduce_all(extent[:2] == shape[:2]),
        lambda: central_window(shape),
        lambda: tf.concat([begin[:2], extent[:2]], axis=0),
    )
    image = _decode(encoded, window, size)
    mirrored = stateless.integers([], 0, 1, stateless.fold(seed, 1)) == 1
    return tf.cond(mirrored, lambda: image[:, ::-1], lambda: image)


def central_crop(encoded, size):
    """Decodes the central square of an image, 7/8 of its shorter side.

    Args:
        encoded: A scalar string, the JPEG file.
        size: Height and width of the result.

    Returns:
        uint8 `(size, size, 3)`.
    """
    shape = tf.image.extract_jpeg_shape(encoded)
    return _decode(encoded, central_window(shape), size)


def central_window(shape):
    """Returns top, left, height and width of the part of `central_crop`."""
    shorter = tf.cast(tf.minimum(shape[0], shape[1]), tf.float32)
    side = tf.cast(shorter * _CENTRAL_FRACTION, tf.int32)
    side = tf.maximum(side, 1)
    return tf.stack(
        [(shape[0] - side + 1) // 2, (shape[1] - side + 1) // 2, side, side]
    )


def _decode(encoded, window, size):
    image = tf.image.decode_and_crop_jpeg(encoded, window, channels=3)
    image = tf.image.resize(image, (size, size), method="bicubic")
    # Bicubic interpolation overshoots at edges.
    image = tf.clip_by_value(tf.round(image), 0, 255)
    return tf.ensure_shape(tf.cast(image, tf.uint8), (size, size, 3))
