"""Gaussian blur and zoom blur."""

import functools

import numpy as np

from caltrain_tf.data.corruptions import separable


def gaussian_blur(images, draws, sigma):
    """Blurs with a Gaussian of standard deviation `sigma` pixels."""
    matrix = separable.blur_matrix(images.shape[-1], sigma)
    return separable.transform(images, matrix)


def zoom_blur(images, draws, stop, step):
    """Takes the mean of the image and of ever larger ones."""
    count, channels, size, _ = images.shape
    across, down = _zooms(size, stop, step)
    # For all factors at once: first along the columns, then the sum over rows
    # and factors as one product, where each row has all factors side by side.
    zoomed = images.reshape(count, channels * size, size) @ across
    return down @ zoomed.reshape(count, channels, -1, size)


@functools.lru_cache(maxsize=8)
def _zooms(size, stop, step):
    matrices = [np.eye(size)]
    for factor in np.arange(1, stop, step):
        matrices.append(separable.zoom_matrix(size, factor))
    # In small images, many factors give the same.
    matrices, counts = np.unique(matrices, axis=0, return_counts=True)
    shares = counts / counts.sum()
    across = np.concatenate(matrices).T
    down = np.stack(shares[:, np.newaxis, np.newaxis] * matrices, axis=-1)
    down = down.reshape(size, -1)
    return across.astype(np.float32, order="C"), down.astype(np.float32)
