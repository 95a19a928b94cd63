"""Elastic warps: an affine map, and a smooth random displacement."""

import numpy as np

from caltrain_tf.data.corruptions import separable


def elastic_transform(images, draws, displacement, sigma, shift):
    """Warps an image.

    Args:
        images: `(batch, channels, size, size)`, in [0, 1].
        draws: `Draws`.
        displacement: Factor of the displacement, in pixels.
        sigma: Standard deviation of the Gaussian that smooths it.
        shift: How far the three points of the affine map move, in pixels.
    """
    size = images.shape[-1]
    moves = draws.uniform([3, 2], -shift, shift)
    images = _sample(images, *_affine(moves, size), "reflect")
    if not displacement:
        return images
    noise = draws.uniform([2, size, size], -displacement, displacement)
    matrix = separable.blur_matrix(size, sigma, 3.0, "symmetric")
    moves = separable.transform(noise, matrix)
    at = np.arange(size, dtype=np.float32)
    rows, columns = moves[:, 0] + at[:, np.newaxis], moves[:, 1] + at
    return _sample(images, rows, columns, "symmetric")


def _affine(moves, size):
    """Returns the rows and columns that each pixel comes from.

    Three corners of a square in the middle are moved, and the rest of the image
    with them.

    Args:
        moves: Of the corners to the right and down, `(batch, 3, 2)`.
        size: Of the images.
    """
    middle, reach = size // 2, size // 3
    corners = np.array([[1, 1], [1, -1], [-1, -1]]) * reach + middle
    homogeneous = np.ones((len(moves), 3, 3))
    homogeneous[..., :2] = corners + moves
    # From where the corners are to where they were.
    maps = np.linalg.inv(homogeneous) @ corners.astype(float)
    maps = maps.astype(np.float32)[..., np.newaxis, np.newaxis]
    at = np.arange(size, dtype=np.float32)
    columns, rows = (
        maps[:, 0, axis] * at
        + (maps[:, 1, axis] * at[:, np.newaxis] + maps[:, 2, axis])
        for axis in (0, 1)
    )
    return rows, columns


def _sample(images, rows, columns, border):
    """Reads images between pixels, bilinearly.

    Args:
        images: `(batch, channels, size, size)`.
        rows: Where each pixel is read, `(batch, size, size)`.
        columns: The same.
        border: As in `separable.fold`.
    """
    count, channels, size, _ = images.shape
    (top, bottom), down = _neighbours(rows, size, border)
    (left, right), across = _neighbours(columns, size, border)
    first = np.arange(count).reshape(-1, 1, 1) * (channels * size**2)
    line = images.reshape(-1)
    result = np.zeros_like(images)
    places, weight = np.empty_like(top), np.empty_like(down)
    values = np.empty_like(down)
    for y, row_weight in ((top, 1 - down), (bottom, down)):
        y *= size
        y += first
        for x, column_weight in ((left, 1 - across), (right, across)):
            np.add(y, x, out=places)
            np.multiply(row_weight, column_weight, out=weight)
            # Each by itself, so that all are read at the same places.
            for channel in range(channels):
                rest = line[channel * size**2 :]
                rest.take(places, out=values, mode="wrap")
                values *= weight
                result[:, channel] += values
    return result


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
