"""Edges of an image with one channel, and the distance to the nearest."""

import numpy as np
import tensorflow as tf

_SOBEL = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]])
# Of the 5 x 5 neighbours: straight, diagonal, and the knight's move; others
# are reached in two steps.
_STRAIGHT, _DIAGONAL, _KNIGHT = 1.0, 1.4, 2.1969


def filter_3x3(images, kernel):
    """Correlates with a kernel; the border is c b|a b c|b a."""
    padded = tf.pad(images, [[0, 0], [1, 1], [1, 1], [0, 0]], "REFLECT")
    kernel = tf.constant(kernel[:, :, np.newaxis, np.newaxis], tf.float32)
    return tf.nn.conv2d(padded, kernel, 1, "VALID")


def find_edges(images, low, high):
    """Returns where Canny's method finds edges, bool.

    Args:
        images: `(batch, size, size, 1)`, 0 to 255.
        low: Gradients above this are edges where they touch stronger ones.
        high: Gradients above this are.
    """
    padded = tf.pad(images, [[0, 0], [1, 1], [1, 1], [0, 0]], "SYMMETRIC")
    kernels = np.stack([_SOBEL, _SOBEL.T], axis=-1)[:, :, np.newaxis]
    gradient = tf.nn.conv2d(
        padded, tf.constant(kernels, tf.float32), 1, "VALID"
    )
    across, down = gradient[..., :1], gradient[..., 1:]
    strength = tf.abs(across) + tf.abs(down)
    thin = _is_ridge(strength, across, down)
    weak = thin & (strength > low)
    edges = tf.cast(thin & (strength > high), tf.float32)
    weak = tf.cast(weak, tf.float32)

    def grow(edges, grown):
        return grown, weak * tf.nn.max_pool2d(grown, 3, 1, "SAME")

    edges, _ = tf.while_loop(
        lambda edges, grown: tf.reduce_any(edges != grown),
        grow,
        (tf.zeros_like(edges) - 1, edges),
    )
    return edges > 0


def distance_to_edges(images, low, high):
    """Returns each pixel's distance to the nearest edge, in pixels.

    Distances are those of a 5 x 5 chamfer, exact up to 20; where there are no
    edges they are larger than that.

    Args:
        images: `(batch, size, size, 1)`, 0 to 255.
        low: As in `find_edges`.
        high: As in `find_edges`.
    """
    far = 1e3
    edges = find_edges(images, low, high)
    distance = tf.where(edges, 0.0, far)
    steps = np.full((5, 5), far)
    for row, column in np.ndindex(5, 5):
        offsets = sorted((abs(row - 2), abs(column - 2)))
        if offsets == [0, 0]:
            steps[row, column] = 0
        elif offsets in ([0, 1], [1, 1], [1, 2]):
            steps[row, column] = {1: _STRAIGHT, 2: _DIAGONAL, 3: _KNIGHT}[
                sum(offsets)
            ]
    # Erosion subtracts its kernel and takes the minimum.
    kernel = tf.constant(-steps[:, :, np.newaxis], tf.float32)
    # A step goes at least one pixel further, and 20 are asked for.
    for _ in range(20):
        distance = tf.nn.erosion2d(
            distance, kernel, [1] * 4, "SAME", "NHWC", [1] * 4
        )
    return distance


def _is_ridge(strength, across, down):
    """Whether no neighbour in the gradient's direction is stronger."""
    size = strength.shape[1]
    padded = tf.pad(strength, [[0, 0], [1, 1], [1, 1], [0, 0]])

    def neighbour(row, column):
        return padded[
            :, 1 + row : 1 + row + size, 1 + column : 1 + column + size
        ]

    slope = np.tan(np.pi / 8)
    level = tf.abs(down) < slope * tf.abs(across)
    upright = tf.abs(across) < slope * tf.abs(down)
    falling = across * down >= 0
    result = False
    for chosen, (row, column) in (
        (level, (0, 1)),
        (upright, (1, 0)),
        (~level & ~upright & falling, (1, 1)),
        (~level & ~upright & ~falling, (1, -1)),
    ):
        before, after = neighbour(-row, -column), neighbour(row, column)
        # Of two that are equally strong one counts; on a diagonal, as
        # published, neither does.
        beyond = strength > after if row and column else strength >= after
        result |= chosen & (strength > before) & beyond
    return result
