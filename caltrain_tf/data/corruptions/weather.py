"""Snow and fog."""

import tensorflow as tf

from caltrain_tf.data.corruptions import separable
from caltrain_tf.data.corruptions.motion_blur import streak
from caltrain_tf.data.corruptions.rounding import truncate

# Of red, green and blue in the brightness that the eye sees.
_LUMA = (0.299, 0.587, 0.114)


def snow(images, draws, mean, scale, zoom, threshold, radius, sigma, keep):
    """Whitens an image and lets flakes fall in two directions.

    Args:
        images: `(batch, size, size, 3)`, in [0, 1].
        draws: `Draws`.
        mean: Of the normal noise that the flakes are made of.
        scale: Its standard deviation.
        zoom: How much the noise is enlarged.
        threshold: What is below is no flake.
        radius: Of the flakes' motion blur.
        sigma: Of the same.
        keep: Share of the image that is not whitened.
    """
    size = images.shape[1]
    flakes = draws.normal([size, size, 1], mean, scale)
    flakes = separable.transform(flakes, separable.zoom_matrix(size, zoom))
    flakes = tf.where(flakes < threshold, tf.zeros_like(flakes), flakes)
    angles = draws.uniform([], -135.0, -45.0)
    flakes = streak(truncate(flakes), angles, radius, sigma)
    luma = tf.reduce_sum(images * _LUMA, axis=-1, keepdims=True)
    white = tf.maximum(images, luma * 1.5 + 0.5)
    whitened = keep * images + (1 - keep) * white
    return whitened + flakes + tf.reverse(flakes, [1, 2])


def fog(images, draws, amount, decay):
    """Adds a random cloud, and darkens so that white stays white.

    Args:
        images: `(batch, size, size, channels)`, in [0, 1].
        draws: `Draws`.
        amount: Of the cloud.
        decay: How much weaker each finer level of the cloud is.
    """
    size = images.shape[1]
    clouds = _plasma(draws, size, decay)[..., tf.newaxis]
    brightest = tf.reduce_max(images, axis=(1, 2, 3), keepdims=True)
    foggy = images + amount * clouds
    return foggy * brightest / (brightest + amount)


def _plasma(draws, size, decay):
    """Returns fractals of the diamond-square method, `(batch, size, size)`.

    They are periodic, of the next power of two, and span [0, 1].
    """
    levels = (size - 1).bit_length()
    whole = 2**levels
    noise = draws.uniform([whole * whole - 1], -1.0, 1.0)
    grid = tf.zeros_like(noise[:, :1, tf.newaxis])
    start = 0
    amplitude = 100.0**2
    for level in range(levels):
        count = 2**level
        parts = []
        for _ in range(3):
            part = noise[:, start : start + count * count]
            parts.append(amplitude * tf.reshape(part, [-1, count, count]))
            start += count * count
        grid = _refine(grid, *parts)
        amplitude /= decay**2
    low = tf.reduce_min(grid, axis=(1, 2), keepdims=True)
    high = tf.reduce_max(grid, axis=(1, 2), keepdims=True)
    return ((grid - low) / (high - low))[:, :size, :size]


def _refine(grid, centre_noise, right_noise, below_noise):
    """Doubles a grid: means of the four nearest points, and noise."""
    pairs = grid + tf.roll(grid, -1, axis=1)
    centre = (pairs + tf.roll(pairs, -1, axis=2)) / 4 + centre_noise
    right = (
        centre + tf.roll(centre, 1, axis=1) + grid + tf.roll(grid, -1, axis=2)
    ) / 4 + right_noise
    below = (
        centre + tf.roll(centre, 1, axis=2) + grid + tf.roll(grid, -1, axis=1)
    ) / 4 + below_noise
    count = grid.shape[1]
    quads = tf.stack(
        [tf.stack([grid, right], 3), tf.stack([below, centre], 3)], 2
    )
    return tf.reshape(quads, [-1, 2 * count, 2 * count])
