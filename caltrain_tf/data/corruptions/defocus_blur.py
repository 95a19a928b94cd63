"""Defocus blur: each point of light becomes a disk."""

import numpy as np

from caltrain_tf.data.corruptions import separable

# In levels: a soft edge that weighs less is none.
_NEGLIGIBLE = 1e-6


def defocus_blur(images, draws, radius, softness):
    """Blurs with a disk, whose edge is softened by a small Gaussian.

    Args:
        images: `(batch, channels, size, size)`, in [0, 1].
        draws: `Draws`, of which there are none.
        radius: Of the disk, in pixels.
        softness: Standard deviation of the Gaussian, in pixels.
    """
    weights = _soft_edge(radius, softness)
    size, margin = images.shape[-1], len(weights) - 1 + int(radius)
    margins = dict.fromkeys((3, 2), (margin, margin))
    padded = separable.pad(images, margins, "reflect")
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


def _soft_edge(radius, softness):
    """Returns the weights of a pixel and of those at distance 1, 2, ..."""
    weights = np.exp(
        -0.5 * (np.arange(2 if radius <= 8 else 3) / softness) ** 2
    )
    weights /= 2 * weights.sum() - weights[0]
    return weights[weights * 255 > _NEGLIGIBLE].astype(np.float32)


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
