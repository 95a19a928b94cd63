"""Blur: defocus, glass, motion, zoom and Gaussian blur."""

import functools
import math

import numpy as np
import scipy.sparse

from caltrain_tf.data.corruptions import core

# In levels: the soft edge of a disk that weighs less is none.
_NEGLIGIBLE_EDGE = 1e-6
# In levels: what the end of a streak weighs that is left out.
_NEGLIGIBLE_END = 1e-3


@core.corruption(
    cifar=((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    imagenet=((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
)
def defocus_blur(images, draws, radius, softness):
    """Blurs with a disk, whose edge is softened by a small Gaussian.

    Args:
        images: `(batch, channels, size, size)`, in [0, 1].
        draws: `Draws`, of which there are none.
        radius: Radius of the disk, in pixels.
        softness: Standard deviation of the Gaussian, in pixels.
    """
    weights = _soft_edge(radius, softness)
    size, margin = images.shape[-1], len(weights) - 1 + int(radius)
    margins = dict.fromkeys((3, 2), (margin, margin))
    padded = core.pad(images, margins, "reflect")
    # All pixels in one line: a row down is as simple as a column to the right.
    # What then comes from the next row or image ends up in the margin.
    width = size + 2 * margin
    pixels = padded.reshape(-1)
    line = _soften(pixels, weights, 1)
    line = _soften(line, weights, width)
    line = _disk_means(line, radius, width)
    # Each image now begins where its margin did.
    pixels[: len(line)] = line
    return padded[..., :size, :size]


@core.corruption(
    cifar=((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    imagenet=((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
)
def glass_blur(images, draws, sigma, reach, iterations):
    """Blurs, moves pixels about, and blurs again.

    As published, pixels are visited from the last to the first, and each takes
    the value that a random neighbour has at that moment.

    Args:
        images: `(batch, channels, size, size)`, in [0, 1].
        draws: `Draws`.
        sigma: Sigma of the Gaussian blurs, in pixels.
        reach: The neighbour is at most this far, in rows and in columns.
        iterations: How often all pixels are visited.
    """
    count, channels, size, _ = images.shape
    matrix = core.blur_matrix(size, sigma)
    images = core.truncate(core.transform(images, matrix))
    visited = size - 2 * reach
    first = np.arange(count).reshape(count, 1) * (channels * size**2)
    for _ in range(iterations):
        offsets = draws.integers([2, visited, visited], -reach, reach - 1)
        sources = (_sources(offsets, size) + first).reshape(count, size, size)
        line, images = images.reshape(-1), np.empty_like(images)
        # All channels move alike.
        for channel in range(channels):
            rest = line[channel * size**2 :]
            images[:, channel] = rest.take(sources, mode="wrap")
    return core.transform(images, matrix)


@core.corruption(
    cifar=((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    imagenet=((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    takes="floats",
)
def motion_blur(images, draws, radius, sigma):
    """Blurs along a line at a random angle within 45 degrees of level."""
    angles = draws.uniform([], -45.0, 45.0)
    return streak(images, angles, radius, sigma)


@core.corruption(
    # Largest zoom factor and step.
    cifar=(
        (1.06, 0.01),
        (1.11, 0.01),
        (1.16, 0.01),
        (1.21, 0.01),
        (1.26, 0.01),
    ),
    imagenet=(
        (1.11, 0.01),
        (1.16, 0.01),
        (1.21, 0.02),
        (1.26, 0.02),
        (1.31, 0.03),
    ),
)
def zoom_blur(images, draws, stop, step):
    """Takes the mean of the image and of ever larger ones."""
    count, channels, size, _ = images.shape
    # The images side by side: then one entry of the matrix serves them all.
    columns = images.reshape(count * channels, size * size).T.copy()
    return (_zooms(size, stop, step) @ columns).T.reshape(images.shape)


@core.corruption(
    cifar=((0.4,), (0.6,), (0.7,), (0.8,), (1,)),
    imagenet=((1,), (2,), (3,), (4,), (6,)),
)
def gaussian_blur(images, draws, sigma):
    """Blurs with a Gaussian of standard deviation `sigma` pixels."""
    matrix = core.blur_matrix(images.shape[-1], sigma)
    return core.transform(images, matrix)


def _soft_edge(radius, softness):
    """Returns the weights of a pixel and of those at distance 1, 2, ..."""
    weights = np.exp(
        -0.5 * (np.arange(2 if radius <= 8 else 3) / softness) ** 2
    )
    weights /= 2 * weights.sum() - weights[0]
    return weights[weights * 255 > _NEGLIGIBLE_EDGE].astype(np.float32)


def _soften(line, weights, step):
    """Sums values that are multiples of `step` apart.

    As all functions here, it returns only values whose neighbours are there,
    so that the line gets shorter at both ends.
    """
    if len(weights) == 1:
        return line
    reach = (len(weights) - 1) * step
    result = line[reach : len(line) - reach] * weights[0]
    for distance, weight in enumerate(weights[1:], start=1):
        before, after = _both_sides(line, distance * step, reach)
        pair = before + after
        pair *= weight
        result += pair
    return result


def _disk_means(line, radius, width):
    """Returns means over the disk around each pixel.

    A disk is a run of pixels in each of its rows. Runs grow by a pixel at both
    ends, and are added where the disk's rows have just that length.
    """
    reach = int(radius)
    if not reach:
        return line
    # To both sides of the middle, by distance from the middle row.
    lengths = np.sqrt(radius**2 - np.arange(reach + 1) ** 2).astype(int)
    runs = line[reach : len(line) - reach].copy()
    total = np.zeros(len(runs) - 2 * reach * width, np.float32)
    for length in range(reach + 1):
        if length:
            for side in _both_sides(line, length, reach):
                runs += side
        for distance in np.flatnonzero(lengths == length):
            sides = _both_sides(runs, distance * width, reach * width)
            for side in sides[: 2 if distance else 1]:
                total += side
    # The rows above the middle, and those below.
    count = 2 * (2 * lengths + 1).sum() - (2 * lengths[0] + 1)
    total *= np.float32(1 / count)
    return total


def _both_sides(line, distance, reach):
    """Returns the values before and after each that is `reach` inside."""
    end = len(line) - reach
    return (
        line[reach - distance : end - distance],
        line[reach + distance : end + distance],
    )


def _sources(offsets, size):
    """Returns which pixel's value each one ends with, `(batch, pixels)`.

    Args:
        offsets: Rows down and columns right to the neighbour of each visited
            pixel, `(batch, 2, visited, visited)`.
        size: The image has `size * size` pixels.
    """
    count, _, visited, _ = offsets.shape
    reach = (size - visited) // 2
    # Rows and columns reach + 1 to size - reach are visited.
    moves = np.zeros((count, size, size), np.intp)
    inside = slice(reach + 1, size - reach + 1)
    moves[:, inside, inside] = offsets[:, 0] * size + offsets[:, 1]
    moves = moves.reshape(count, -1)
    # A pixel further on was visited before and has its new value already:
    # follow it to where that came from, in ever larger steps. `num_pixels + i`
    # stands for the old value of pixel i, where that ends.
    num_pixels = size * size
    old = np.broadcast_to(np.arange(num_pixels, 2 * num_pixels), moves.shape)
    sources = old + moves - num_pixels * (moves > 0)
    first = np.arange(count)[:, np.newaxis] * 2 * num_pixels
    while sources.min() < num_pixels:
        chain = np.concatenate([sources, old], axis=1)
        sources = chain.take(sources + first)
    return sources - num_pixels


def streak(images, angles, radius, sigma):
    """Smears images to one side, as ImageMagick's motion blur does.

    The kernel is half of a Gaussian, from the pixel itself outwards, at the
    pixels nearest to a line. The result has the 256 levels of a pixel.

    Args:
        images: `(batch, size, size, channels)`, in [0, 1].
        angles: In degrees, `(batch,)`.
        radius: The line has `2 * radius + 1` pixels.
        sigma: Standard deviation of the Gaussian, in pixels.
    """
    weights = _weights(radius, sigma)
    radians = angles * np.float32(math.pi / 180)
    moves = np.stack([np.sin(radians), np.cos(radians)])[..., np.newaxis]
    moves = moves * np.arange(len(weights), dtype=np.float32)
    moves = np.ceil(moves - np.float32(0.5)).astype(int)
    return core.nearest(_sum_of_moved(images, *moves, weights))


@functools.lru_cache(maxsize=32)
def _weights(radius, sigma):
    weights = np.exp(-0.5 * (np.arange(2 * radius + 1) / sigma) ** 2)
    weights = (weights / weights.sum()).astype(np.float32)
    later = np.cumsum(weights[::-1])[::-1]
    return weights[later * 255 > _NEGLIGIBLE_END]


def _sum_of_moved(images, down, right, weights):
    """Returns a weighted sum of an image's moved copies.

    Args:
        images: `(batch, size, size, channels)`.
        down: By how many pixels, `(batch, taps)`.
        right: The same.
        weights: `(taps,)`.
    """
    _, size, _, channels = images.shape
    # No pixel moves less far than the first, which stays.
    margins = {
        axis: (-moves.min(), moves.max())
        for axis, moves in ((2, right), (1, down))
    }
    padded = core.pad(images, margins, "edge")
    # All parts of an image's size, as views. A row of pixels is a run of
    # numbers: the longer it is, the less it costs to copy it.
    shape = [*np.subtract(padded.shape[1:3], size - 1), size, size * channels]
    parts = np.lib.stride_tricks.as_strided(
        padded,
        [len(images), *shape],
        [*padded.strides[:3], padded.strides[1], padded.strides[3]],
        writeable=False,
    )
    image = np.arange(len(images))
    down, right = down - down.min(), right - right.min()
    # The first copy has not moved.
    result = (images * weights[0]).reshape(len(images), *parts.shape[3:])
    for tap, weight in enumerate(weights[1:], start=1):
        moved = parts[image, down[:, tap], right[:, tap]]
        moved *= weight
        result += moved
    return result.reshape(images.shape)


@functools.lru_cache(maxsize=8)
def _zooms(size, stop, step):
    """Returns the mean of all zooms as one matrix of whole images, sparse.

    Larger images differ little: they read the same few pixels.
    """
    matrices = [np.eye(size)]
    for factor in np.arange(1, stop, step):
        matrices.append(core.zoom_matrix(size, factor))
    matrices = [scipy.sparse.csr_array(matrix) for matrix in matrices]
    wholes = (scipy.sparse.kron(each, each, "csr") for each in matrices)
    return (sum(wholes) / len(matrices)).astype(np.float32)
