"""Snow and fog."""

import numpy as np

from caltrain_tf.data.corruptions import separable
from caltrain_tf.data.corruptions.motion_blur import streak
from caltrain_tf.data.corruptions.rounding import truncate

# Of red, green and blue in the brightness that the eye sees.
_LUMA = np.float32([0.299, 0.587, 0.114])


def snow(images, draws, mean, scale, zoom, threshold, radius, sigma, keep):
    """Whitens an image and lets flakes fall in two directions.

    Args:
        images: `(batch, 3, size, size)`, in [0, 1].
        draws: `Draws`.
        mean: Of the normal noise that the flakes are made of.
        scale: Its standard deviation.
        zoom: How much the noise is enlarged.
        threshold: What is below is no flake.
        radius: Of the flakes' motion blur.
        sigma: Of the same.
        keep: Share of the image that is not whitened.
    """
    size = images.shape[-1]
    flakes = draws.normal([1, size, size], mean, scale)
    flakes = separable.transform(flakes, separable.zoom_matrix(size, zoom))
    flakes *= flakes >= threshold
    angles = draws.uniform([], -135.0, -45.0)
    flakes = truncate(flakes).reshape(-1, size, size, 1)
    flakes = streak(flakes, angles, radius, sigma)
    flakes = flakes.reshape(-1, 1, size, size)
    luma = sum(images[:, i : i + 1] * share for i, share in enumerate(_LUMA))
    luma *= np.float32(1.5)
    luma += np.float32(0.5)
    white = np.maximum(images, luma)
    white *= np.float32(1 - keep)
    snowy = np.float32(keep) * images
    snowy += white
    snowy += flakes + flakes[..., ::-1, ::-1]
    return snowy


def fog(images, draws, amount, decay):
    """Adds a random cloud, and darkens so that white stays white.

    Args:
        images: `(batch, channels, size, size)`, in [0, 1].
        draws: `Draws`.
        amount: Of the cloud.
        decay: How much weaker each finer level of the cloud is.
    """
    size = images.shape[-1]
    amount = np.float32(amount)
    clouds = _plasma(draws, size, decay)[:, np.newaxis]
    brightest = images.max(axis=(1, 2, 3), keepdims=True)
    foggy = images + amount * clouds
    return foggy * (brightest / (brightest + amount))


def _plasma(draws, size, decay):
    """Returns fractals of the diamond-square method, `(batch, size, size)`.

    They are periodic, of the next power of two, and span [0, 1].
    """
    levels = (size - 1).bit_length()
    whole = 2**levels
    noise = draws.uniform([whole * whole - 1], -1.0, 1.0)
    grid = np.zeros((len(noise), 1, 1), np.float32)
    start = 0
    amplitude = 100.0**2
    for level in range(levels):
        count = 2**level
        parts = noise[:, start : start + 3 * count * count]
        parts = np.float32(amplitude) * parts.reshape(-1, 3, count, count)
        start += 3 * count * count
        grid = _refine(grid, parts)
        amplitude /= decay**2
    low = grid.min(axis=(1, 2), keepdims=True)
    high = grid.max(axis=(1, 2), keepdims=True)
    return ((grid - low) / (high - low))[:, :size, :size]


def _refine(grid, noise):
    """Doubles a grid: means of the four nearest points, and noise."""
    batch, count, _ = grid.shape
    # In the middle of four, to the right of a point, and below it.
    middle_noise, right_noise, below_noise = np.moveaxis(noise, 1, 0)
    pairs = grid + _rolled(grid, 1, axis=1)
    quarter = np.float32(0.25)
    middle = (pairs + _rolled(pairs, 1, axis=2)) * quarter + middle_noise
    fine = np.empty((batch, count, 2, count, 2), np.float32)
    fine[:, :, 0, :, 0] = grid
    fine[:, :, 1, :, 1] = middle
    fine[:, :, 0, :, 1] = right_noise + quarter * (
        (middle + _rolled(middle, -1, axis=1)) + grid + _rolled(grid, 1, axis=2)
    )
    fine[:, :, 1, :, 0] = below_noise + quarter * (
        (middle + _rolled(middle, -1, axis=2)) + pairs
    )
    return fine.reshape(batch, 2 * count, 2 * count)


def _rolled(grid, step, axis):
    """Returns the next point's (1) or the last one's (-1) value."""
    places = np.arange(step, grid.shape[axis] + step)
    return grid.take(places, axis=axis, mode="wrap")
