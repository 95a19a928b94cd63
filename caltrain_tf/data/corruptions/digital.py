"""Digital corruptions: contrast, elastic, pixelate and JPEG."""

import io

import numpy as np
import scipy.ndimage
from PIL import Image

from caltrain_tf.data.corruptions import core


@core.corruption(
    cifar=((0.75,), (0.5,), (0.4,), (0.3,), (0.15,)),
    imagenet=((0.4,), (0.3,), (0.2,), (0.1,), (0.05,)),
)
def contrast(image, rng, factor):
    """Moves each channel towards its mean over the image."""
    means = image.mean(axis=(0, 1))
    return (image - means) * factor + means


@core.corruption(
    # In pixels: for CIFAR of a 32-pixel image; for ImageNet-C the published
    # factors times 244, as in the published code.
    cifar=(
        (0, 0, 2.56),
        (1.6, 6.4, 2.24),
        (2.56, 1.92, 1.92),
        (3.2, 1.28, 1.6),
        (3.2, 0.96, 0.96),
    ),
    imagenet=(
        (488, 170.8, 24.4),
        (488, 19.52, 48.8),
        (12.2, 2.44, 4.88),
        (17.08, 2.44, 4.88),
        (29.28, 2.44, 4.88),
    ),
)
def elastic_transform(image, rng, displacement, sigma, shift):
    """Warps an image with an affine map and a smooth displacement.

    `shift` is the largest shift of the three points of the affine map, and
    `sigma` that of the Gaussian that smooths displacements.
    """
    size = len(image)
    moves = rng.uniform(-shift, shift, (3, 2))
    image = _sample(image, affine(moves, size), "mirror")
    if not displacement:
        return image
    moves = rng.uniform(-displacement, displacement, (2, size, size))
    options = {"mode": "reflect", "truncate": 3, "axes": (1, 2)}
    moves = scipy.ndimage.gaussian_filter(moves, sigma, **options)
    return _sample(image, np.indices((size, size)) + moves, "reflect")


@core.corruption(
    cifar=((0.95,), (0.9,), (0.85,), (0.75,), (0.65,)),
    imagenet=((0.6,), (0.5,), (0.4,), (0.3,), (0.25,)),
)
def pixelate(image, rng, factor):
    """Shrinks an image and enlarges it again, with a box filter."""
    pixels = Image.fromarray(core.to_pixels(image))
    for side in (int(len(image) * factor), len(image)):
        pixels = pixels.resize((side, side), Image.Resampling.BOX)
    return np.asarray(pixels) / 255


@core.corruption(
    cifar=((80,), (65,), (58,), (50,), (40,)),
    imagenet=((25,), (18,), (15,), (10,), (7,)),
)
def jpeg_compression(image, rng, quality):
    """Encodes an image as JPEG of this quality and decodes it again."""
    file = io.BytesIO()
    Image.fromarray(core.to_pixels(image)).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file, formats=["JPEG"])) / 255


def affine(moves, size):
    """Returns the rows and columns that pixels come from as corners move."""
    # Three corners of a square in the middle of the image, as (column, row).
    middle, reach = size // 2, size // 3
    corners = np.array([[1, 1], [1, -1], [-1, -1]]) * reach + middle
    # Maps the new corners to the old ones.
    matrix = np.linalg.solve(np.c_[corners + moves, np.ones(3)], corners)
    rows, columns = np.indices((size, size))
    sources = np.stack([columns, rows, np.ones_like(rows)], axis=-1) @ matrix
    return sources[..., 1], sources[..., 0]


def _sample(image, places, mode):
    """Reads each channel between the pixels, with bilinear interpolation."""
    channels = [
        scipy.ndimage.map_coordinates(channel, places, order=1, mode=mode)
        for channel in np.moveaxis(image, -1, 0)
    ]
    return np.stack(channels, axis=-1)
