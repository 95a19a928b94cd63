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
    size = images.shape[-1]
    rows, down, height = _pixels_before(rows, size, border)
    columns, across, width = _pixels_before(columns, size, border)
    # With what is outside, so that all neighbours are there: of a pixel in the
    # line of all, those at the same few distances.
    padded = images.take(height, axis=2).take(width, axis=3)
    count, channels, height, width = padded.shape
    line = padded.reshape(-1)
    rows *= width
    rows += columns
    rows += np.arange(count).reshape(-1, 1, 1) * (channels * height * width)
    up, back = 1 - down, 1 - across
    weights = (
        (0, up * back),
        (1, up * across),
        (width, down * back),
        (width + 1, down * across),
    )
    result = np.empty_like(images)
    values, total = np.empty((2, count, size, size), np.float32)
    for channel in range(channels):
        total[:] = 0
        for distance, weight in weights:
            start = channel * height * width + distance
            line[start:].take(rows, out=values, mode="clip")
            values *= weight
            total += values
        result[:, channel] = total
    return result


def _pixels_before(places, size, border):
    """Returns the pixels before places, in a padded image.

    Args:
        places: In pixels, of any shape.
        size: Of the image.
        border: As in `separable.fold`.

    Returns:
        The pixels' indices, how far the places are on, and which pixel of the
        image each of the padded one is.
    """
    before = np.floor(places)
    share = places - before
    before = before.astype(np.intp)
    lowest, highest = before.min(), before.max()
    if highest - lowest > 2 * size:
        # Far away it is all the same again.
        before %= separable.period(size, border)
        lowest, highest = before.min(), before.max()
    before -= lowest
    inside = np.arange(lowest, highest + 2)
    return before, share, separable.fold(inside, size, border)
