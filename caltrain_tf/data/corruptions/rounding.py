"""From numbers in [0, 1] to the 256 levels of a pixel."""

import numpy as np

# Above the rounding errors of float32, below what makes a visible difference.
_TOLERANCE = np.float32(1e-4)


def to_pixels(images):
    """Returns uint8 levels, cut off to the level below, as published."""
    levels = images * np.float32(255)
    levels += _TOLERANCE
    # Short integers are clipped in a fraction of the time.
    levels = levels.astype(np.int16)
    np.clip(levels, 0, 255, out=levels)
    return levels.astype(np.uint8)


def truncate(images):
    """Returns [0, 1] with only the 256 levels of `to_pixels`."""
    return _floor(_levels(images, _TOLERANCE))


def nearest(images):
    """Returns [0, 1] with only the 256 levels, the nearest ones."""
    return _floor(_levels(images, _TOLERANCE + np.float32(0.5)))


def _levels(images, offset):
    levels = np.clip(images, np.float32(0), np.float32(1))
    levels *= np.float32(255)
    levels += offset
    return levels


def _floor(levels):
    """Works in place: memory that is new costs more than the arithmetic."""
    np.floor(levels, out=levels)
    levels /= np.float32(255)
    return levels
