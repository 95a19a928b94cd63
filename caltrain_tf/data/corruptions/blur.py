"""Blurs with a kernel that is the same for all images."""

import functools

import numpy as np

from caltrain_tf.data.corruptions import separable


def gaussian_blur(images, draws, sigma):
    """Blurs with a Gaussian of standard deviation `sigma` pixels."""
    matrix = separable.blur_matrix(images.shape[-1], sigma)
    return separable.transform(images, matrix)


def defocus_blur(images, draws, radius, softness):
    """Blurs with a disk, whose edge is softened by a small Gaussian."""
    kernel = _disk(radius, softness)
    size, margin = images.shape[-1], len(kernel) // 2
    places = np.arange(-margin, size + margin)
    places = separable.fold(places, size, "reflect")
    padded = images.take(places, axis=2).take(places, axis=3)
    result = np.zeros_like(images)
    for row, column in np.argwhere(kernel > 1e-9):
        part = padded[..., row : row + size, column : column + size]
        result += part * kernel[row, column]
    return result


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


@functools.lru_cache(maxsize=8)
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
    used = slice(used[0], used[-1] + 1)
    return disk[used, used].astype(np.float32)
