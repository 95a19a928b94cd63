"""Blurs with a kernel that is the same for all images."""

import numpy as np
import tensorflow as tf

from caltrain_tf.data.corruptions import separable


def gaussian_blur(images, draws, sigma):
    """Blurs with a Gaussian of standard deviation `sigma` pixels."""
    matrix = separable.blur_matrix(images.shape[1], sigma)
    return separable.transform(images, matrix)


def defocus_blur(images, draws, radius, softness):
    """Blurs with a disk, whose edge is softened by a small Gaussian."""
    kernel = _disk(radius, softness)
    margin = len(kernel) // 2
    padding = [[0, 0], [margin, margin], [margin, margin], [0, 0]]
    padded = tf.pad(images, padding, "REFLECT")
    channels = images.shape[-1]
    kernels = np.repeat(kernel[:, :, np.newaxis, np.newaxis], channels, axis=2)
    return tf.nn.depthwise_conv2d(
        padded, tf.constant(kernels, tf.float32), [1, 1, 1, 1], "VALID"
    )


def zoom_blur(images, draws, stop, step):
    """Takes the mean of the image and of ever larger ones."""
    factors = np.arange(1, stop, step)
    size, channels = images.shape[2:]
    matrices = [np.eye(size)]
    matrices += [separable.zoom_matrix(size, factor) for factor in factors]
    # In small images, many factors give the same.
    matrices, counts = np.unique(matrices, axis=0, return_counts=True)
    # For all factors at once: first along the columns, then the sum over rows
    # and factors as one product, where each row has all factors side by side.
    counts = counts[:, np.newaxis, np.newaxis] / counts.sum()
    across = np.concatenate(matrices).T
    down = np.stack(counts * matrices, axis=-1).reshape(size, -1)
    planes = tf.transpose(images, [0, 3, 1, 2])
    rows = tf.reshape(planes, [-1, channels * size, size])
    zoomed = separable.product(rows, across)
    zoomed = tf.reshape(zoomed, [-1, down.shape[1], size])
    zoomed = tf.reshape(
        separable.product(down, zoomed), [-1, channels, size, size]
    )
    return tf.transpose(zoomed, [0, 2, 3, 1])


def _disk(radius, softness):
    reach = int(max(8, radius))
    distance = np.arange(-reach, reach + 1)
    squares = distance**2
    disk = (squares[:, np.newaxis] + squares <= radius**2).astype(float)
    taps = 3 if radius <= 8 else 5
    offsets = np.arange(taps) - taps // 2
    weights = np.exp(-0.5 * (offsets / softness) ** 2)
    weights /= weights.sum()
    # Room for the soft edge; then without the zeros around.
    disk = np.pad(disk / disk.sum(), taps // 2)
    for axis in (0, 1):
        disk = sum(
            weight * np.roll(disk, offset, axis)
            for weight, offset in zip(weights, offsets, strict=True)
        )
    used = np.flatnonzero(disk.sum(axis=0) > 1e-9)
    return disk[used[0] : used[-1] + 1, used[0] : used[-1] + 1]
