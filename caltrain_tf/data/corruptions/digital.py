"""Digital corruptions: contrast, elastic, pixelate, JPEG and saturate."""

import numpy as np
import tensorflow as tf

from caltrain_tf.data.corruptions import core

# Images per iteration of the JPEG loop, because the overhead of an iteration is
# as large as the cost of a small file.
_IMAGES_A_TURN = 16


@core.corruption(
    cifar=((0.75,), (0.5,), (0.4,), (0.3,), (0.15,)),
    imagenet=((0.4,), (0.3,), (0.2,), (0.1,), (0.05,)),
    takes="floats",
)
def contrast(images, draws, factor):
    """Moves each channel towards its mean over the image."""
    count, size, _, channels = images.shape
    # Operations on whole rows are faster than on three channels at a time.
    lines = images.reshape(count, size, size * channels)
    means = lines.mean(axis=1).reshape(count, size, channels).mean(axis=1)
    means = np.tile(means, size)[:, np.newaxis]
    lines = lines - means
    lines *= np.float32(factor)
    lines += means
    return lines.reshape(images.shape)


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
def elastic_transform(images, draws, displacement, sigma, shift):
    """Warps an image with an affine map and a smooth displacement.

    Args:
        images: `(batch, channels, size, size)`, in [0, 1].
        draws: `Draws`.
        displacement: Scale of the displacement, in pixels.
        sigma: Standard deviation of the Gaussian that smooths the displacement.
        shift: Largest shift of the three points of the affine map, in pixels.
    """
    size = images.shape[-1]
    moves = draws.uniform([3, 2], -shift, shift)
    images = _sample(images, *_affine(moves, size), "reflect")
    if not displacement:
        return images
    noise = draws.uniform([2, size, size], -displacement, displacement)
    matrix = core.blur_matrix(size, sigma, 3.0, "symmetric")
    moves = core.transform(noise, matrix)
    at = np.arange(size, dtype=np.float32)
    rows, columns = moves[:, 0] + at[:, np.newaxis], moves[:, 1] + at
    return _sample(images, rows, columns, "symmetric")


@core.corruption(
    cifar=((0.95,), (0.9,), (0.85,), (0.75,), (0.65,)),
    imagenet=((0.6,), (0.5,), (0.4,), (0.3,), (0.25,)),
)
def pixelate(images, draws, factor):
    """Shrinks an image and enlarges it again, with a box filter."""
    count, channels, size, _ = images.shape
    small = int(size * factor)
    matrix = core.box_matrix(size, small)
    # Image libraries round to 256 levels after each step.
    images = core.nearest(images @ matrix.T.copy())
    images = core.nearest(matrix @ images)
    # Enlarging copies pixels.
    nearby = core.box_matrix(small, size).argmax(axis=1)
    places = nearby[:, np.newaxis] * small + nearby
    images = images.reshape(count, channels, small * small)
    return images.take(places, axis=2)


@core.corruption(
    cifar=((80,), (65,), (58,), (50,), (40,)),
    imagenet=((25,), (18,), (15,), (10,), (7,)),
    takes="batch",
)
def jpeg_compression(pixels, draws, quality):
    """Encodes images as JPEG and decodes them again.

    Args:
        pixels: uint8 `(batch, size, size, 3)`.
        draws: `Draws`, which are not used.
        quality: Quality of the JPEG files.
    """
    return _through_files(pixels, quality).numpy()


@core.corruption(
    cifar=((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
    imagenet=((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
)
def saturate(images, draws, factor, offset):
    """Scales and shifts the saturation in HSV space."""
    value = images.max(axis=1, keepdims=True)
    gap = value - images
    chroma = gap.max(axis=1, keepdims=True)
    saturation = chroma / np.maximum(value, core.TINY)
    wanted = saturation * np.float32(factor) + np.float32(offset)
    wanted = np.clip(wanted, np.float32(0), np.float32(1))
    hue = gap / np.maximum(chroma, core.TINY)
    # Grey pixels have no hue; theirs is set to 0, which is red.
    hue[:, 1:] += chroma == 0
    return value * (1 - wanted * hue)


def _affine(moves, size):
    """Returns the rows and columns that each pixel comes from.

    The affine map moves three corners of a square in the middle of the image.

    Args:
        moves: Shifts of the corners to the right and down, `(batch, 3, 2)`.
        size: Size of the images.
    """
    middle, reach = size // 2, size // 3
    corners = np.array([[1, 1], [1, -1], [-1, -1]]) * reach + middle
    homogeneous = np.ones((len(moves), 3, 3))
    homogeneous[..., :2] = corners + moves
    # Maps the new corners to the old ones.
    maps = np.linalg.inv(homogeneous) @ corners.astype(float)
    maps = maps.astype(np.float32)[..., np.newaxis, np.newaxis]
    at = np.arange(size, dtype=np.float32)
    columns, rows = (
        maps[:, 0, axis] * at
        + (maps[:, 1, axis] * at[:, np.newaxis] + maps[:, 2, axis])
        for axis in (0, 1)
    )
    return rows, columns


def _sample(images, rows, columns, border):
    """Samples images at fractional positions with bilinear interpolation.

    Args:
        images: `(batch, channels, size, size)`.
        rows: Row at which each pixel is read, `(batch, size, size)`.
        columns: Column at which each pixel is read, `(batch, size, size)`.
        border: As in `core.fold`.
    """
    count, channels, size, _ = images.shape
    top, left = np.floor(rows), np.floor(columns)
    down, across = rows - top, columns - left
    up, back = 1 - down, 1 - across
    weights = (up * back, up * across, down * back, down * across)
    # Images are extended by the part of the border that is read. In them the
    # neighbours of every pixel have the same offsets, so one array of places is
    # enough.
    first_row, first_column = int(top.min()), int(left.min())
    inside_rows, inside_columns = (
        core.fold(np.arange(first, last + 2, dtype=int), size, border)
        for first, last in ((first_row, top.max()), (first_column, left.max()))
    )
    around = inside_rows[:, np.newaxis] * size + inside_columns
    width, num_pixels = len(inside_columns), around.size
    line = images.reshape(-1, size * size).take(around, axis=1).reshape(-1)
    # Exact, because float32 represents integers up to 2**24.
    places = top if num_pixels < 2**24 else top.astype(float)
    places *= width
    places += left
    places -= first_row * width + first_column
    places = places.astype(np.intp)
    places += np.arange(count).reshape(-1, 1, 1) * (channels * num_pixels)
    result = np.empty((channels, count, size, size), np.float32)
    values = np.empty_like(down)
    # One channel at a time, so that all channels share the array of places.
    for channel, total in enumerate(result):
        plane = line[channel * num_pixels :]
        # No place is out of bounds; "clip" is the fastest mode without a check.
        plane.take(places, out=total, mode="clip")
        total *= weights[0]
        for offset, weight in zip(
            (1, width, width + 1), weights[1:], strict=True
        ):
            plane[offset:].take(places, out=values, mode="clip")
            values *= weight
            total += values
    return result.swapaxes(0, 1)


@tf.function(
    input_signature=[
        tf.TensorSpec([None, None, None, 3], tf.uint8),
        tf.TensorSpec([], tf.int32),
    ]
)
def _through_files(pixels, quality):
    def through_file(pixels):
        encoded = tf.raw_ops.EncodeJpegVariableQuality(
            images=pixels, quality=quality
        )
        return tf.io.decode_jpeg(encoded, 3, dct_method="INTEGER_ACCURATE")

    count, *size = tf.unstack(tf.shape(pixels))
    # Black images fill up the last iteration.
    missing = -count % _IMAGES_A_TURN
    pixels = tf.pad(pixels, [[0, missing]] + 3 * [[0, 0]])
    turns = tf.map_fn(
        lambda few: tf.stack([*map(through_file, tf.unstack(few))]),
        tf.reshape(pixels, [-1, _IMAGES_A_TURN, *size]),
    )
    return tf.reshape(turns, [-1, *size])[:count]
