"""Glass blur: each pixel is replaced by one nearby."""

import tensorflow as tf

from caltrain_tf.data.corruptions import separable
from caltrain_tf.data.corruptions.rounding import truncate


def glass_blur(images, draws, sigma, reach, iterations):
    """Blurs, moves pixels about, and blurs again.

    As published, pixels are visited from the last to the first, and each takes
    the value that a random neighbour has at that moment.

    Args:
        images: `(batch, size, size, channels)`, in [0, 1].
        draws: `Draws`.
        sigma: Of the Gaussian blurs, in pixels.
        reach: The neighbour is at most this far, in rows and in columns.
        iterations: How often all pixels are visited.
    """
    size, channels = images.shape[2:]
    matrix = separable.blur_matrix(size, sigma)
    images = truncate(separable.transform(images, matrix))
    pixels = tf.reshape(images, [-1, size * size, channels])
    for _ in range(iterations):
        pixels = _of(pixels, _sources(draws, size, reach))
    images = tf.reshape(pixels, [-1, size, size, channels])
    return separable.transform(images, matrix)


def _sources(draws, size, reach):
    """Returns which pixel's value each one ends with, `(batch, pixels)`."""
    # Rows and columns reach + 1 to size - reach are visited.
    visited = size - 2 * reach
    offsets = draws.integers([2, visited, visited], -reach, reach - 1)
    moves = offsets[:, 0] * size + offsets[:, 1]
    margin = [reach + 1, reach - 1]
    moves = tf.reshape(
        tf.pad(moves, [[0, 0], margin, margin]), [-1, size * size]
    )
    # A pixel further on was visited before and has its new value already:
    # follow it to where that came from, in ever larger steps.
    sources, pending = tf.while_loop(
        lambda sources, pending: tf.reduce_any(pending),
        lambda sources, pending: (
            tf.where(pending, _of(sources, sources), sources),
            pending & _of(pending, sources),
        ),
        (tf.range(size * size) + moves, moves > 0),
    )
    return sources


def _of(values, pixels):
    return tf.gather(values, pixels, axis=1, batch_dims=1)
