"""Blur: defocus, glass, motion, zoom and Gaussian blur."""

import functools
import math

import numpy as np
import scipy.sparse

from caltrain_tf.data.corruptions import core

# In levels; smaller weights of the soft edge of a disk are dropped.
_NEGLIGIBLE_EDGE = 1e-6
# In levels; the end of a streak is dropped if its total weight is smaller.
_NEGLIGIBLE_END = 1e-3


@core.corruption(
    cifar=((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    imagenet=((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
)
def defocus_blur(images, draws, radius, softness):
    """Blurs with a disk whose edge is softened by a small Gaussian.

    Args:
        images: `(batch, channels, size, size)`, in [0, 1].
        draws: `Draws`, which are not used.
        radius: Radius of the disk, in pixels.
        softness: Standard deviation of the Gaussian, in pixels.
    """
    weights = _soft_edge(radius, softness)
    size, margin = images.shape[-1], len(weights) - 1 + int(radius)
    margins = dict.fromkeys((3, 2), (margin, margin))
    padded = core.pad(images, margins, "reflect")
    # In one flat array, a move down by a row is as simple as a move to the
    # right. Values from the next row or image end up in the margin.
    width = size + 2 * margin
    pixels = padded.reshape(-1)
    line = _soften(pixels, weights, 1)
    line = _soften(line, weights, width)
    line = _disk_means(line, radius, width)
    # Each image now begins where its margin began.
    pixels[: len(line)] = line
    return padded[..., :size, :size]


@core.corruption(
    cifar=((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    imagenet=((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
)
def glass_blur(images, draws, sigma, reach, iterations):
    """Blurs an image, moves pixels at random, and blurs it again.

    As in the published code, pixels are visited from the last to the first, and
    each takes the current value of a random neighbour.

    Args:
        images: `(batch, channels, size, size)`, in [0, 1].
        draws: `Draws`.
        sigma: Standard deviation of the Gaussian blurs, in pixels.
        reach: Largest distance of the neighbour, in rows and in columns.
        iterations: How many times all pixels are visited.
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
        # All channels move in the same way.
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
    """Blurs along a line at a random angle within 45 degrees of horizontal."""
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
    """Averages the image and versions of it with increasing zoom."""
    count, channels, size, _ = images.shape
    # With one image per column, each matrix entry is read once for all images.
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
    """Returns the weights of pixels at the distances 0, 1, 2, ..."""
    weights = np.exp(
        -0.5 * (np.arange(2 if radius <= 8 else 3) / softness) ** 2
    )
    weights /= 2 * weights.sum() - weights[0]
    return weights[weights * 255 > _NEGLIGIBLE_EDGE].astype(np.float32)


def _soften(line, weights, step):
    """Returns weighted sums of values whose distances are multiples of `step`.

    Like the other functions on flat arrays, it returns only values that have
    all of their neighbours, so the result is shorter at both ends.
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

    A disk has one run of pixels in each of its rows. The runs grow by a pixel
    at both ends and are added for the rows of the disk that have this length.
    """
    reach = int(radius)
    if not reach:
        return line
    # Half lengths of the runs, by distance from the middle row.
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
    # The rows above and below the middle count twice, the middle row once.
    count = 2 * (2 * lengths + 1).sum() - (2 * lengths[0] + 1)
    total *= np.float32(1 / count)
    return total


def _both_sides(line, distance, reach):
    """Returns the values `distance` before and after each inner value.

    Inner values are at least `reach` from both ends.
    """
    end = len(line) - reach
    return (
        line[reach - distance : end - distance],
        line[reach + distance : end + distance],
    )


def _sources(offsets, size):
    """Returns the source of each pixel's final value, `(batch, pixels)`.

    Args:
        offsets: Offsets down and to the right of the neighbour of each visited
            pixel, `(batch, 2, visited, visited)`.
        size: Height and width of the images.
    """
    count, _, visited, _ = offsets.shape
    reach = (size - visited) // 2
    # Rows and columns reach + 1 to size - reach are visited.
    moves = np.zeros((count, size, size), np.intp)
    inside = slice(reach + 1, size - reach + 1)
    moves[:, inside, inside] = offsets[:, 0] * size + offsets[:, 1]
    moves = moves.reshape(count, -1)
    # A neighbour with a larger index was visited before and already has its new
    # value, so its source is followed in turn, in steps that double in length.
    # `num_pixels + i` denotes the old value of pixel i, where a chain ends.
    num_pixels = size * size
    old = np.broadcast_to(np.arange(num_pixels, 2 * num_pixels), moves.shape)
    sources = old + moves - num_pixels * (moves > 0)
    first = np.arange(count)[:, np.newaxis] * 2 * num_pixels
    while sources.min() < num_pixels:
        chain = np.concatenate([sources, old], axis=1)
        sources = chain.take(sources + first)
    return sources - num_pixels


def streak(images, angles, radius, sigma):
    """Applies the one-sided motion blur of ImageMagick.

    The kernel is one half of a Gaussian, starting at the pixel itself, at the
    pixels nearest to a line. The result is rounded to the 256 levels of pixels.

    Args:
        images: `(batch, size, size, channels)`, in [0, 1].
        angles: Angles in degrees, `(batch,)`.
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
    """Returns a weighted sum of shifted copies of each image.

    Args:
        images: `(batch, size, size, channels)`.
        down: Shift of each copy down in pixels, `(batch, taps)`.
        right: Shift of each copy to the right in pixels, `(batch, taps)`.
        weights: Weight of each copy, `(taps,)`.
    """
    _, size, _, channels = images.shape
    # The first copy is not shifted, so the margins cannot be negative.
    margins = {
        axis: (-moves.min(), moves.max())
        for axis, moves in ((2, right), (1, down))
    }
    padded = core.pad(images, margins, "edge")
    # Views of all windows of the image's size. Each row of a window is one
    # contiguous run, and long runs are the fastest to copy.
    shape = [*np.subtract(padded.shape[1:3], size - 1), size, size * channels]
    parts = np.lib.stride_tricks.as_strided(
        padded,
        [len(images), *shape],
        [*padded.strides[:3], padded.strides[1], padded.strides[3]],
        writeable=False,
    )
    image = np.arange(len(images))
    down, right = down - down.min(), right - right.min()
    # The first copy is not shifted.
    result = (images * weights[0]).reshape(len(images), *parts.shape[3:])
    for tap, weight in enumerate(weights[1:], start=1):
        moved = parts[image, down[:, tap], right[:, tap]]
        moved *= weight
        result += moved
    return result.reshape(images.shape)


@functools.lru_cache(maxsize=8)
def _zooms(size, stop, step):
    """Returns the mean of all zooms as one sparse matrix on whole images.

    It has few entries, because consecutive zooms read nearly the same pixels.
    """
    matrices = [np.eye(size)]
    for factor in np.arange(1, stop, step):
        matrices.append(core.zoom_matrix(size, factor))
    matrices = [scipy.sparse.csr_array(matrix) for matrix in matrices]
    wholes = (scipy.sparse.kron(each, each, "csr") for each in matrices)
    return (sum(wholes) / len(matrices)).astype(np.float32)
