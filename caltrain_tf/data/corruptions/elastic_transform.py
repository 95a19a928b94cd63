"""Elastic warps: an affine map, and a smooth random displacement."""

import numpy as np
import tensorflow as tf

from caltrain_tf.data.corruptions import separable
from caltrain_tf.data.corruptions.rows import by_rows


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

    def read(images, rows, columns):
        return _read(images, rows, columns, border)

    inputs = [images, rows, columns]
    return by_rows(read, inputs, images.shape[1:], tf.float32)


def _read(images, rows, columns, border):
    count, size, _, channels = images.shape
    # Each channel by itself: the sums are over long rows.
    planes = np.ascontiguousarray(images.reshape(-1, channels).T)
    result = np.zeros((channels, count, size, size), np.float32)
    first = np.arange(count)[:, np.newaxis, np.newaxis] * size**2
    (top, bottom), down = _neighbours(rows, size, border)
    (left, right), across = _neighbours(columns, size, border)
    for y, row_weight in ((top, 1 - down), (bottom, down)):
        y = y * size + first
        for x, column_weight in ((left, 1 - across), (right, across)):
            places, weight = y + x, row_weight * column_weight
            for plane, channel in zip(planes, result, strict=True):
                values = plane.take(places, mode="wrap")
                values *= weight
                channel += values
    return np.moveaxis(result, 0, -1)


def _neighbours(places, size, border):
    """Returns the pixels before and after, and how far the place is on."""
    before = np.floor(places)
    share = places - before
    before = before.astype(np.intp)
    lowest = before.min()
    before -= lowest
    inside = np.arange(lowest, lowest + before.max() + 2)
    inside = separable.fold(inside, size, border)
    return (inside.take(before), inside[1:].take(before)), share
