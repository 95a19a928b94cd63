"""Weather corruptions: snow, frost, fog and brightness."""

import functools

import numpy as np
import scipy.ndimage

from caltrain_tf.data.corruptions import blur, core

# Weights of red, green and blue in perceived brightness.
_LUMA = (0.299, 0.587, 0.114)
# Mean of red, green and blue, and the standard deviation, of each published
# frost photograph. Two of the five are the same.
_TINTS = (
    ((78, 149, 166), 19),
    ((201, 205, 214), 22),
    ((201, 205, 214), 22),
    ((138, 153, 165), 29),
    ((112, 123, 135), 43),
)
_TEXTURE_SIZE = 512
# Means of four neighbours.
_STRAIGHT = np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]]) / 4
_DIAGONAL = np.array([[1, 0, 1], [0, 0, 0], [1, 0, 1]]) / 4
# Avoids division by zero; no nonzero level is that small.
_TINY = 1e-9


@core.corruption(
    cifar=(
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    imagenet=(
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ),
)
def snow(image, rng, mean, scale, zoom, threshold, radius, sigma, keep):
    """Whitens an image and adds flakes that fall in two directions.

    Flakes are normal noise above `threshold`, enlarged by `zoom` and blurred
    along a line; `keep` is the weight of the original image, the rest is white.
    """
    enlarge = blur.zoom_matrix(len(image), zoom)
    flakes = enlarge @ rng.normal(mean, scale, image.shape[:2]) @ enlarge.T
    flakes = core.to_pixels(flakes * (flakes >= threshold)) / 255
    angle = rng.uniform(-135, -45)
    flakes = blur.streak(flakes[..., np.newaxis], angle, radius, sigma)
    luma = (image @ _LUMA)[..., np.newaxis]
    white = np.maximum(image, luma * 1.5 + 0.5)
    return keep * image + (1 - keep) * white + flakes + flakes[::-1, ::-1]


@core.corruption(
    cifar=((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
    imagenet=((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
)
def frost(image, rng, keep, amount):
    """Lays a random part of a texture over an image."""
    size = len(image)
    # As the published code scales its photographs.
    scale = 0.2 if size <= core.LARGEST_SMALL_SIZE else 1
    ice = textures(scale)[rng.integers(len(_TINTS))]
    for axis in (0, 1):
        start = rng.integers(max(ice.shape[axis] - size, 0) + 1)
        # The textures are periodic, for images that are larger.
        ice = ice.take(np.arange(start, start + size), axis, mode="wrap")
    # Whole levels, because the sum is rounded down.
    return (keep * np.round(image * 255) + amount * ice) / 255


@core.corruption(
    cifar=((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
    imagenet=((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
)
def fog(image, rng, amount, decay):
    """Adds a random cloud and darkens, so that white stays white."""
    size, brightest = len(image), image.max()
    cloud = plasma(rng, 2 ** (size - 1).bit_length(), decay)[:size, :size]
    foggy = image + amount * cloud[..., np.newaxis]
    return foggy * brightest / (brightest + amount)


@core.corruption(
    cifar=((0.05,), (0.1,), (0.15,), (0.2,), (0.3,)),
    imagenet=((0.1,), (0.2,), (0.3,), (0.4,), (0.5,)),
)
def brightness(image, rng, amount):
    """Raises the value in HSV space."""
    value = image.max(axis=-1, keepdims=True)
    gap = value - image
    chroma = gap.max(axis=-1, keepdims=True)
    saturation = chroma / np.maximum(value, _TINY)
    # 0 for the largest channel of a pixel and 1 for the smallest one.
    hue = gap / np.maximum(chroma, _TINY)
    return np.minimum(value + amount, 1) * (1 - saturation * hue)


@functools.cache
def textures(scale):
    """Returns scaled 1/f noise, which is about as rough as the photographs."""
    size = _TEXTURE_SIZE
    rows, columns = np.fft.fftfreq(size), np.fft.rfftfreq(size)
    frequency = np.hypot(columns, rows[:, np.newaxis])
    frequency[0, 0] = np.inf
    found = []
    for seed, (mean, contrast) in enumerate(_TINTS):
        noise = np.random.default_rng(seed).normal(size=(size, size))
        ice = np.fft.irfft2(np.fft.rfft2(noise) / frequency)
        ice = ice[..., np.newaxis] / ice.std() * contrast + mean
        ice = np.clip(np.round(ice), 0, 255).astype(np.uint8)
        # Bilinear and without smoothing, as in the published code.
        options = {"order": 1, "mode": "nearest", "grid_mode": True}
        found.append(scipy.ndimage.zoom(ice, (scale, scale, 1), **options))
    return found


def plasma(rng, size, decay):
    """Returns a diamond-square fractal in [0, 1]; `size` is a power of two."""
    grid, amplitude = np.zeros((1, 1)), 100.0**2
    while len(grid) < size:
        fine = np.zeros((2 * len(grid), 2 * len(grid)))
        fine[::2, ::2] = grid
        noise = rng.uniform(-amplitude, amplitude, fine.shape)
        # First the middle of four points, then the points between two.
        rows, columns = np.indices(fine.shape) % 2
        for neighbours, at in (
            (_DIAGONAL, (rows == 1) & (columns == 1)),
            (_STRAIGHT, rows != columns),
        ):
            mean = scipy.ndimage.correlate(fine, neighbours, mode="wrap")
            fine[at] = mean[at] + noise[at]
        grid, amplitude = fine, amplitude / decay**2
    return (grid - grid.min()) / np.ptp(grid)
