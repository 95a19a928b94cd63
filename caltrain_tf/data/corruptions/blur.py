"""Gaussian blur and zoom blur."""

import functools

import numpy as np
import scipy.sparse

from caltrain_tf.data.corruptions import separable


def gaussian_blur(images, draws, sigma):
    """Blurs with a Gaussian of standard deviation `sigma` pixels."""
    matrix = separable.blur_matrix(images.shape[-1], sigma)
    return separable.transform(images, matrix)


def zoom_blur(images, draws, stop, step):
    """Takes the mean of the image and of ever larger ones."""
    count, channels, size, _ = images.shape
    # The images side by side: then one entry of the matrix serves them all.
    columns = images.reshape(count * channels, size * size).T.copy()
    return (_zooms(size, stop, step) @ columns).T.reshape(images.shape)


@functools.lru_cache(maxsize=8)
def _zooms(size, stop, step):
    """Returns the mean of all zooms as one matrix of whole images, sparse.

    Larger images differ little: they read the same few pixels.
    """
    matrices = [np.eye(size)]
    for factor in np.arange(1, stop, step):
        matrices.append(separable.zoom_matrix(size, factor))
    matrices = [scipy.sparse.csr_array(matrix) for matrix in matrices]
    wholes = (scipy.sparse.kron(each, each, "csr") for each in matrices)
    return (sum(wholes) / len(matrices)).astype(np.float32)
