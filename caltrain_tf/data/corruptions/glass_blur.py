"""Glass blur: each pixel is replaced by one nearby."""

import numpy as np

from caltrain_tf.data.corruptions import separable
from caltrain_tf.data.corruptions.rounding import truncate


def glass_blur(images, draws, sigma, reach, iterations):
    """Blurs, moves pixels about, and blurs again.

    As published, pixels are visited from the last to the first, and each takes
    the value that a random neighbour has at that moment.

    Args:
        images: `(batch, channels, size, size)`, in [0, 1].
        draws: `Draws`.
        sigma: Of the Gaussian blurs, in pixels.
        reach: The neighbour is at most this far, in rows and in columns.
        iterations: How often all pixels are visited.
    """
    count, channels, size, _ = images.shape
    matrix = separable.blur_matrix(size, sigma)
    images = truncate(separable.transform(images, matrix))
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
    return separable.transform(images, matrix)


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
