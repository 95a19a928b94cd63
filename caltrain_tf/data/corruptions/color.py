"""Changes of brightness, contrast and saturation."""

import numpy as np

# Instead of dividing by zero; no level is that small.
_TINY = np.float32(1e-9)


def brightness(images, draws, amount):
    """Raises the value of hue, saturation and value."""
    value = images.max(axis=1, keepdims=True)
    raised = np.minimum(value + np.float32(amount), np.float32(1))
    # Hue and saturation stay: all channels grow by the same factor, and
    # black becomes grey.
    grown = images * (raised / np.maximum(value, _TINY))
    return grown + (value == 0) * raised


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
