"""Random shifts and flips of whole batches."""

import tensorflow as tf


def shift_and_flip(images, shifts, flips, max_shift):
    """Moves and mirrors each image of a batch by its own amounts.

    The same as to pad by `max_shift` black pixels on every side, to crop at
    the place `max_shift` + shift, and then to mirror left and right.

    Args:
        images: `(batch, height, width, channels)` of any type.
        shifts: Of the crop, down and to the right, `(batch, 2)`, integers
            from -`max_shift` to `max_shift`.
        flips: 1 where the image is mirrored, else 0, `(batch,)`.
        max_shift: The padding.

    Returns:
        Images of the same shape and type.

    Example:
        >>> image = tf.reshape(tf.range(1, 5), [1, 2, 2, 1])
        >>> shift_and_flip(image, [[1, 0]], [1], 1)[0, :, :, 0].numpy()
        array([[4, 3],
               [0, 0]], dtype=int32)
    """
    shifts, flips = tf.convert_to_tensor(shifts), tf.convert_to_tensor(flips)
    height, width = images.shape[1:3]
    margin = [max_shift, max_shift]
    padded = tf.pad(images, [[0, 0], margin, margin, [0, 0]])
    rows = max_shift + shifts[:, :1] + tf.range(height)
    columns = tf.where(
        flips[:, tf.newaxis] == 1,
        tf.range(width)[::-1],
        tf.range(width),
    )
    columns += max_shift + shifts[:, 1:]
    # Two gathers of whole rows and pixels are twice as fast as
    # `ImageProjectiveTransformV3`, and far faster than a crop an image.
    moved = tf.gather(padded, rows, axis=1, batch_dims=1)
    return tf.gather(moved, columns, axis=2, batch_dims=1)
