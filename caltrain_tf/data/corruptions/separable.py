"""Blurs and resizings as a matrix for the rows and one for the columns.

What happens at the border is part of the matrix.
"""

import functools
import math

import numpy as np


def fold(indices, size, border):
    """Returns the pixels that stand for those outside of an image.

    Args:
        indices: An array of integers.
        size: The number of pixels.
        border: `"edge"`: a a|a b c|c c; `"symmetric"`: b a|a b c|c b;
            `"reflect"`: c b|a b c|b a.

    Example:
        >>> fold(np.arange(-2, 5), 3, "symmetric").tolist()
        [1, 0, 0, 1, 2, 2, 1]
        >>> fold(np.arange(-2, 5), 3, "reflect").tolist()
        [2, 1, 0, 1, 2, 1, 0]
    """
    if border == "edge":
        return np.clip(indices, 0, size - 1)
    symmetric = border == "symmetric"
    period = 2 * size if symmetric else max(2 * size - 2, 1)
    indices = indices % period
    return np.minimum(indices, period - int(symmetric) - indices)


def pad(images, margins, border):
    """Returns images with a border, for which `np.pad` takes longer.

    Args:
        images: An array.
        margins: From an axis to the numbers of pixels before and after.
        border: As in `fold`.

    Example:
        >>> pad(np.array([[1, 2, 3]]), {1: (1, 2)}, "reflect")
        array([[2, 1, 2, 3, 2, 1]])
    """
    shape, inside = list(images.shape), [slice(None)] * images.ndim
    for axis, (before, after) in margins.items():
        shape[axis] += before + after
        inside[axis] = slice(before, before + images.shape[axis])
    padded = np.empty(shape, images.dtype)
    padded[tuple(inside)] = images
    for axis, (before, after) in margins.items():
        size = images.shape[axis]
        # The border of one axis, then, from end to end, that of the next.
        inside[axis] = slice(None)
        along = padded[tuple(inside)].swapaxes(0, axis)
        if border == "edge":
            along[:before] = along[before]
            along[before + size :] = along[before + size - 1]
            continue
        sources = fold(np.arange(-before, size + after), size, border) + before
        for place in (*range(before), *range(before + size, len(sources))):
            along[place] = along[sources[place]]
    return padded


@functools.lru_cache(maxsize=32)
def blur_matrix(size, sigma, truncate=4.0, border="edge"):
    """Returns the matrix of a Gaussian blur, `(size, size)`.

    Args:
        size: The number of pixels.
        sigma: The standard deviation in pixels; 0 is no blur.
        truncate: Where the Gaussian is cut off, in standard deviations.
        border: As in `fold`.
    """
    radius = int(truncate * sigma + 0.5)
    offsets = np.arange(-radius, radius + 1)
    weights = np.exp(-0.5 * (offsets / max(sigma, 1e-9)) ** 2)
    weights /= weights.sum()
    matrix = np.zeros((size, size))
    rows = np.arange(size)[:, np.newaxis]
    columns = fold(rows + offsets, size, border)
    np.add.at(matrix, (rows, columns), weights)
    return matrix.astype(np.float32)


@functools.lru_cache(maxsize=32)
def zoom_matrix(size, factor):
    """Returns the matrix that enlarges the centre, `(size, size)`.

    The ends of the part that is kept stay ends: its first pixel's centre is
    the first pixel's centre of the result.
    """
    kept = math.ceil(size / factor)
    enlarged = round(kept * factor)
    first = (enlarged - size) // 2
    at = np.arange(first, first + size) * (kept - 1) / max(enlarged - 1, 1)
    below = np.minimum(at.astype(int), max(kept - 2, 0))
    share = at - below
    matrix = np.zeros((size, size))
    rows = np.arange(size)
    start = (size - kept) // 2
    np.add.at(matrix, (rows, start + below), 1 - share)
    above = np.minimum(below + 1, kept - 1)
    np.add.at(matrix, (rows, start + above), share)
    return matrix


@functools.lru_cache(maxsize=32)
def box_matrix(size, new_size):
    """Returns the matrix of a box-filter resizing, `(new_size, size)`.

    A pixel of the result is the mean of those whose centres it covers, or,
    when enlarging, the one that its centre is in.
    """
    scale = size / new_size
    support = max(scale, 1.0)
    centres = (np.arange(new_size) + 0.5) * scale
    distance = (np.arange(size) + 0.5 - centres[:, np.newaxis]) / support
    matrix = ((distance > -0.5) & (distance <= 0.5)).astype(float)
    matrix /= matrix.sum(axis=1, keepdims=True)
    return matrix.astype(np.float32)


def transform(images, matrix):
    """Applies a matrix to the rows and to the columns of square images.

    Args:
        images: `(batch, channels, size, size)`, float32.
        matrix: `(new_size, size)`.

    Returns:
        `(batch, channels, new_size, new_size)`.
    """
    matrix = matrix.astype(np.float32, copy=False)
    # Copied, since NumPy is slower with many products of a transposed view.
    # One large product would be faster, but not beside other threads.
    return matrix @ (images @ matrix.T.copy())
