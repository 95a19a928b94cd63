"""Blur: defocus, glass, motion and zoom blur."""

import functools
import math

import numpy as np
import scipy.ndimage
import scipy.sparse

from caltrain_tf.data.corruptions import core


@core.corruption(
    cifar=((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    imagenet=((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
)
def defocus_blur(image, rng, radius, softness):
    """Blurs with a disk whose edge is softened by a small Gaussian."""
    kernel = _soft_disk(radius, softness)[..., np.newaxis]
    return scipy.ndimage.correlate(image, kernel, mode="mirror")


@core.corruption(
    cifar=((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    imagenet=((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
)
def glass_blur(image, rng, sigma, reach, iterations):
    """Blurs an image, moves pixels at random, and blurs it again.

    Pixels are visited from the last to the first, and each takes the current
    value of a random neighbour, up to `reach` rows and columns away.
    """
    size = len(image)
    image = core.to_pixels(_gaussian_blur(image, sigma)) / 255
    pixels = image.reshape(-1, 3)
    for _ in range(iterations):
        offsets = rng.integers(-reach, reach, (2, *[size - 2 * reach] * 2))
        pixels = pixels[glass_sources(offsets, size)]
    return _gaussian_blur(pixels.reshape(image.shape), sigma)


@core.corruption(
    cifar=((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    imagenet=((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
)
def motion_blur(image, rng, radius, sigma):
    """Blurs along a line at a random angle within 45 degrees of horizontal."""
    return streak(image, rng.uniform(-45, 45), radius, sigma)


@core.corruption(
    cifar=((1.06, 1), (1.11, 1), (1.16, 1), (1.21, 1), (1.26, 1)),
    imagenet=((1.11, 1), (1.16, 1), (1.21, 2), (1.26, 2), (1.31, 3)),
)
def zoom_blur(image, rng, stop, percent):
    """Averages the image and versions of it, each `percent` larger."""
    zooms = _mean_of_zooms(len(image), stop, percent / 100)
    return (zooms @ image.reshape(-1, 3)).reshape(image.shape)


def _gaussian_blur(image, sigma):
    return scipy.ndimage.gaussian_filter(
        image, sigma, mode="nearest", axes=(0, 1)
    )


@functools.lru_cache(maxsize=8)
def _soft_disk(radius, softness):
    taps = np.arange(-1, 2) if radius <= 8 else np.arange(-2, 3)
    at = np.arange(-int(radius) - taps[-1], int(radius) + taps[-1] + 1)
    disk = at[:, np.newaxis] ** 2 + at**2 <= radius**2
    soft = np.exp(-0.5 * (taps / softness) ** 2)
    # In float32 as in the published code, because its rounding decides about
    # the last level of flat areas.
    kernel, soft = np.float32(disk / disk.sum()), np.float32(soft / soft.sum())
    for axis in (0, 1):
        kernel = scipy.ndimage.correlate1d(kernel, soft, axis, mode="constant")
    return kernel


def glass_sources(offsets, size):
    """Returns where each pixel comes from; `offsets` lead down and right."""
    # Rows and columns reach + 1 to size - reach are visited.
    reach = (size - offsets.shape[1]) // 2
    moves = np.zeros((size, size), int)
    inside = slice(reach + 1, size - reach + 1)
    moves[inside, inside] = offsets[0] * size + offsets[1]
    pixels = np.arange(size * size)
    sources = pixels + moves.ravel()
    # A neighbour that comes later was visited before and has the value of its
    # own source: follow such neighbours, in steps that double in length.
    ends = np.maximum(sources, pixels)
    while (ends[ends] != ends).any():
        ends = ends[ends]
    return sources[ends]


def streak(image, angle, radius, sigma):
    """Applies ImageMagick's motion blur: half of a Gaussian along a line."""
    taps = np.arange(2 * radius + 1)
    weights = np.exp(-0.5 * (taps / sigma) ** 2)
    weights /= weights.sum()
    radians = math.radians(angle)
    size, margin = len(image), 2 * radius
    rows = margin + np.ceil(taps * math.sin(radians) - 0.5).astype(int)
    columns = margin + np.ceil(taps * math.cos(radians) - 0.5).astype(int)
    padded = np.pad(image, [(margin, margin)] * 2 + [(0, 0)], mode="edge")
    blurred = np.zeros_like(image)
    for row, column, weight in zip(rows, columns, weights, strict=True):
        blurred += weight * padded[row : row + size, column : column + size]
    return np.round(blurred * 255) / 255


@functools.lru_cache(maxsize=8)
def zoom_matrix(size, factor):
    """Returns the matrix that enlarges the centre, `(size, size)`."""
    kept = math.ceil(size / factor)
    start = (size - kept) // 2
    enlarged = scipy.ndimage.zoom(np.eye(kept), (factor, 1), order=1)
    cut = (len(enlarged) - size) // 2
    matrix = np.zeros((size, size))
    matrix[:, start : start + kept] = enlarged[cut : cut + size]
    return matrix


@functools.lru_cache(maxsize=8)
def _mean_of_zooms(size, stop, step):
    """Returns the mean of all zooms as one sparse matrix on whole images."""
    factors = np.arange(1, stop, step)
    matrices = [np.eye(size), *(zoom_matrix(size, x) for x in factors)]
    matrices = [scipy.sparse.csr_array(matrix) for matrix in matrices]
    wholes = (scipy.sparse.kron(each, each, "csr") for each in matrices)
    return sum(wholes) / len(matrices)
