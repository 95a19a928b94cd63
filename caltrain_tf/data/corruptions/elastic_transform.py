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
    top, left = np.floor(rows), np.floor(columns)
    down, across = rows - top, columns - left
    up, back = 1 - down, 1 - across
    weights = (up * back, up * across, down * back, down * across)
    # Images with all of their border that is read. There, the neighbours of
    # all pixels are equally far away, and one array of places is enough.
    first_row, first_column = int(top.min()), int(left.min())
    inside_rows, inside_columns = (
        separable.fold(np.arange(first, last + 2, dtype=int), size, border)
        for first, last in ((first_row, top.max()), (first_column, left.max()))
    )
    around = inside_rows[:, np.newaxis] * size + inside_columns
    width, num_pixels = len(inside_columns), around.size
    line = images.reshape(-1, size * size).take(around, axis=1).reshape(-1)
    # Exact: whole numbers, in float32 up to 2**24.
    places = top if num_pixels < 2**24 else top.astype(float)
    places *= width
    places += left
    places -= first_row * width + first_column
    places = places.astype(np.intp)
    places += np.arange(count).reshape(-1, 1, 1) * (channels * num_pixels)
    result = np.empty((channels, count, size, size), np.float32)
    values = np.empty_like(down)
    # Each channel by itself, so that all are read at the same places.
    for channel, total in enumerate(result):
        plane = line[channel * num_pixels :]
        # No place is outside; to clip is the fastest way not to check it.
        plane.take(places, out=total, mode="clip")
        total *= weights[0]
        for offset, weight in zip(
            (1, width, width + 1), weights[1:], strict=True
        ):
            plane[offset:].take(places, out=values, mode="clip")
            values *= weight
            total += values
    return result.swapaxes(0, 1)
