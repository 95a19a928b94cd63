"""Elastic warps: an affine map, and a smooth random displacement."""

import numpy as np
import tensorflow as tf

from caltrain_tf.data.corruptions import separable


def elastic_transform(images, draws, displacement, sigma, shift):
    """Warps an image.

    Args:
        images: `(batch, size, size, channels)`, in [0, 1].
        draws: `Draws`.
        displacement: Factor of the displacement, in pixels.
        sigma: Standard deviation of the Gaussian that smooths it.
        shift: How far the three points of the affine map move, in pixels.
    """
    size = images.shape[1]
    rows, columns = _affine(draws, size, shift)
    images = _sample(images, rows, columns, "reflect")
    noise = draws.uniform([size, size, 2], -1.0, 1.0)
    matrix = separable.blur_matrix(size, sigma, 3.0, "symmetric")
    moves = displacement * separable.transform(noise, matrix)
    at = tf.range(size, dtype=tf.float32)
    rows, columns = at[:, tf.newaxis] + moves[..., 0], at + moves[..., 1]
    return _sample(images, rows, columns, "symmetric")


def _affine(draws, size, shift):
    """Returns the rows and columns that each pixel comes from.

    Three corners of a square in the middle are moved at random, and the rest
    of the image with them.
    """
    middle, reach = size // 2, size // 3
    corners = np.array([[1, 1], [1, -1], [-1, -1]]) * reach + middle
    moved = corners + draws.uniform([3, 2], -shift, shift)
    homogeneous = tf.concat([moved, tf.ones_like(moved[..., :1])], axis=-1)
    # From where the corners are to where they were.
    target = tf.broadcast_to(tf.constant(corners, tf.float32), tf.shape(moved))
    maps = tf.linalg.solve(homogeneous, target)
    at = np.stack(np.meshgrid(np.arange(size), np.arange(size)), axis=-1)
    at = np.concatenate([at, np.ones((size, size, 1))], axis=-1)
    points = tf.constant(at.reshape(-1, 3), tf.float32)
    # By hand, since a product would have to broadcast; see `separable`.
    maps = maps[:, tf.newaxis]
    sources = sum(
        points[:, axis, tf.newaxis] * maps[:, :, axis] for axis in range(3)
    )
    sources = tf.reshape(sources, [-1, size, size, 2])
    return sources[..., 1], sources[..., 0]


def _sample(images, rows, columns, border):
    """Reads images between pixels, bilinearly."""
    size, channels = images.shape[2:]
    pixels = tf.reshape(images, [-1, size * size, channels])
    top, left = tf.floor(rows), tf.floor(columns)
    down, right = rows - top, columns - left
    result = 0.0
    for row, row_weight in ((0, 1 - down), (1, down)):
        for column, column_weight in ((0, 1 - right), (1, right)):
            y = separable.fold(tf.cast(top, tf.int32) + row, size, border)
            x = separable.fold(tf.cast(left, tf.int32) + column, size, border)
            flat = tf.reshape(y * size + x, [-1, size * size])
            values = tf.gather(pixels, flat, axis=1, batch_dims=1)
            weight = tf.reshape(
                row_weight * column_weight, [-1, size * size, 1]
            )
            result += weight * values
    return tf.reshape(result, [-1, size, size, channels])
