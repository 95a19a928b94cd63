"""Changes of brightness, contrast and saturation."""

import functools

import numpy as np

from caltrain_tf.data.corruptions.rounding import to_pixels

# Instead of dividing by zero; no level is that small.
_TINY = np.float32(1e-9)


def brightness(pixels, draws, amount):
    """Raises the value of hue, saturation and value."""
    table = _raised(amount)
    red, green, blue = np.moveaxis(pixels, -1, 0)
    value = np.maximum(np.maximum(red, green), blue).astype(np.uint16)
    value <<= np.uint16(8)
    brighter = np.empty_like(pixels)
    for channel, levels in enumerate((red, green, blue)):
        brighter[..., channel] = table.take(value | levels, mode="wrap")
    return brighter


@functools.lru_cache(maxsize=8)
def _raised(amount):
    """Returns the new level of each value and level, uint8 `(65536,)`."""
    levels = np.arange(256, dtype=np.float32) / 255
    value = levels[:, np.newaxis]
    raised = np.minimum(value + np.float32(amount), np.float32(1))
    # Hue and saturation stay: all channels grow by the same factor, and
    # black becomes grey.
    grown = np.minimum(levels, value) * (raised / np.maximum(value, _TINY))
    return to_pixels(grown + (value == 0) * raised).ravel()


def contrast(images, draws, factor):
    """Draws each channel to its mean over the image."""
    count, size, _, channels = images.shape
    # Rows of pixels as runs of numbers: three at a time would be slow.
    lines = images.reshape(count, size, size * channels)
    means = lines.mean(axis=1).reshape(count, size, channels).mean(axis=1)
    means = np.tile(means, size)[:, np.newaxis]
    lines = lines - means
    lines *= np.float32(factor)
    lines += means
    return lines.reshape(images.shape)


def saturate(images, draws, factor, offset):
    """Scales and shifts the saturation of hue, saturation and value."""
    value = images.max(axis=1, keepdims=True)
    gap = value - images
    chroma = gap.max(axis=1, keepdims=True)
    saturation = chroma / np.maximum(value, _TINY)
    wanted = saturation * np.float32(factor) + np.float32(offset)
    wanted = np.clip(wanted, np.float32(0), np.float32(1))
    hue = gap / np.maximum(chroma, _TINY)
    # Where there is no hue, 0 is taken for it, which is red.
    hue[:, 1:] += chroma == 0
    return value * (1 - wanted * hue)
