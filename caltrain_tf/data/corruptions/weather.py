"""Weather corruptions: snow, frost, fog, brightness and spatter."""

import functools
import importlib.util
import os

import numpy as np
import tensorflow as tf

from caltrain_tf.data.corruptions import core
from caltrain_tf.data.corruptions.blur import streak

# Weights of red, green and blue in perceived brightness.
_LUMA = np.float32([0.299, 0.587, 0.114])
_ENDINGS = (".png", ".jpg", ".jpeg")
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
_NUM_DIRECTIONS = 7
_WATER = np.float32([175, 238, 238]).reshape(3, 1, 1) / 255
_MUD = np.float32([63, 42, 20]).reshape(3, 1, 1) / 255
# An emboss filter with light from one corner.
_RELIEF = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])
_MEAN = np.full((3, 3), 1 / 9)
_SOBEL = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]])
# Distances to neighbours in a 5 x 5 window: straight, diagonal and a knight's
# move. Other neighbours are reached in two steps.
_STRAIGHT, _DIAGONAL, _KNIGHT = 1.0, 1.4, 2.1969


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
def snow(images, draws, mean, scale, zoom, threshold, radius, sigma, keep):
    """Whitens an image and adds flakes that fall in two directions.

    Args:
        images: `(batch, 3, size, size)`, in [0, 1].
        draws: `Draws`.
        mean: Mean of the normal noise from which the flakes are made.
        scale: Standard deviation of the noise.
        zoom: Factor by which the noise is enlarged.
        threshold: Noise below this value is set to 0.
        radius: Radius of the motion blur of the flakes.
        sigma: Standard deviation of the motion blur.
        keep: Weight of the original image; the rest is whitened.
    """
    size = images.shape[-1]
    flakes = draws.normal([1, size, size], mean, scale)
    flakes = core.transform(flakes, core.zoom_matrix(size, zoom))
    flakes *= flakes >= threshold
    angles = draws.uniform([], -135.0, -45.0)
    flakes = core.truncate(flakes).reshape(-1, size, size, 1)
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


@core.corruption(
    # The last number is the scale of the photographs.
    cifar=(
        (1, 0.2, 0.2),
        (1, 0.3, 0.2),
        (0.9, 0.4, 0.2),
        (0.85, 0.4, 0.2),
        (0.75, 0.45, 0.2),
    ),
    imagenet=(
        (1, 0.4, 1),
        (0.8, 0.6, 1),
        (0.7, 0.7, 1),
        (0.65, 0.7, 1),
        (0.6, 0.75, 1),
    ),
    takes="floats",
)
def frost(images, draws, keep, amount, scale, frost_dir=None):
    """Lays a random part of a frost photograph over an image.

    Args:
        images: `(batch, size, size, 3)`, in [0, 1].
        draws: `Draws`.
        keep: Factor of the image.
        amount: Factor of the frost.
        scale: Scale of the photographs.
        frost_dir: A folder of photographs, of which the first five by name are
            used, as in the published code; by default `installed_photographs`.
            Without photographs, textures with their colours and contrasts are
            generated, which differ from the frost of CIFAR-10-C and ImageNet-C.
    """
    frost_dir = frost_dir or installed_photographs()
    photographs = _photographs(frost_dir, scale)
    size = images.shape[1]
    shapes = np.array([photo.shape[:2] for photo in photographs])
    if shapes.min() < size:
        raise ValueError(
            f"The photographs in `frost_dir`, times {scale}, must have at "
            f"least {size} x {size} pixels. Received: {shapes.min()} pixels in "
            f"frost_dir={frost_dir!r}"
        )
    which = draws.integers([], 0, len(photographs) - 1)
    corners = (draws.uniform([2]) * (shapes[which] - size)).astype(int)
    ice = np.stack(
        [
            photographs[photo][row : row + size, column : column + size]
            for photo, (row, column) in zip(which, corners, strict=True)
        ]
    )
    frosty = ice.astype(np.float32)
    frosty *= np.float32(amount / 255)
    frosty += np.float32(keep) * images
    return frosty


@core.corruption(
    cifar=((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
    imagenet=((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
)
def fog(images, draws, amount, decay):
    """Adds a random cloud and darkens, so that white stays white.

    Args:
        images: `(batch, channels, size, size)`, in [0, 1].
        draws: `Draws`.
        amount: Brightness of the cloud.
        decay: Factor by which each finer level of the cloud is weaker.
    """
    size = images.shape[-1]
    amount = np.float32(amount)
    clouds = _plasma(draws, size, decay)[:, np.newaxis]
    brightest = images.max(axis=(1, 2, 3), keepdims=True)
    foggy = images + amount * clouds
    return foggy * (brightest / (brightest + amount))


@core.corruption(
    cifar=((0.05,), (0.1,), (0.15,), (0.2,), (0.3,)),
    imagenet=((0.1,), (0.2,), (0.3,), (0.4,), (0.5,)),
    takes="pixels",
)
def brightness(pixels, draws, amount):
    """Raises the value in HSV space."""
    table = _raised(amount)
    red, green, blue = np.moveaxis(pixels, -1, 0)
    value = np.maximum(np.maximum(red, green), blue).astype(np.uint16)
    value <<= np.uint16(8)
    brighter = np.empty_like(pixels)
    for channel, levels in enumerate((red, green, blue)):
        brighter[..., channel] = table.take(value | levels, mode="wrap")
    return brighter


@core.corruption(
    cifar=(
        (0.62, 0.1, 0.7, 0.7, 0.5, "water"),
        (0.65, 0.1, 0.8, 0.7, 0.5, "water"),
        (0.65, 0.3, 1, 0.69, 0.5, "water"),
        (0.65, 0.1, 0.7, 0.69, 0.6, "mud"),
        (0.65, 0.1, 0.5, 0.68, 0.6, "mud"),
    ),
    imagenet=(
        (0.65, 0.3, 4, 0.69, 0.6, "water"),
        (0.65, 0.3, 3, 0.68, 0.6, "water"),
        (0.65, 0.3, 2, 0.68, 0.5, "water"),
        (0.65, 0.3, 1, 0.65, 1.5, "mud"),
        (0.67, 0.4, 1, 0.65, 1.5, "mud"),
    ),
)
def spatter(images, draws, mean, scale, sigma, threshold, amount, liquid):
    """Covers parts of an image with a liquid.

    Args:
        images: `(batch, 3, size, size)`, in [0, 1].
        draws: `Draws`.
        mean: Mean of the normal noise from which the drops are made.
        scale: Standard deviation of the noise.
        sigma: Standard deviation of the Gaussian that smooths it, in pixels.
        threshold: Noise below this value is dry.
        amount: The opacity of water; for mud, the blur of its edge in pixels.
        liquid: `"water"` or `"mud"`.
    """
    size = images.shape[-1]
    depth = draws.normal([1, size, size], mean, scale)
    depth = core.transform(depth, core.blur_matrix(size, sigma))
    depth *= depth >= threshold
    if liquid == "mud":
        matrix = core.blur_matrix(size, amount)
        wet = (depth > threshold).astype(np.float32)
        cover = core.transform(wet, matrix)
        cover *= cover >= 0.8
        return images * (1 - cover) + cover * _MUD
    drops = _compiled_drops(size)(np.moveaxis(depth, 1, -1)).numpy()
    return images + np.float32(amount) * np.moveaxis(drops, -1, 1) * _WATER


def installed_photographs():
    """Returns the frost folder of the package `imagecorruptions`, or None.

    Only its image files are used. The package is not imported, because its
    requirements OpenCV, Numba and scikit-image may be missing.
    """
    package = importlib.util.find_spec("imagecorruptions")
    for folder in (package and package.submodule_search_locations) or ():
        folder = os.path.join(folder, "frost")
        if os.path.isdir(folder):
            return folder
    return None


@functools.lru_cache(maxsize=4)
def _photographs(frost_dir, scale):
    if frost_dir is None:
        photographs = [
            _texture(seed, *tint) for seed, tint in enumerate(_TINTS)
        ]
    else:
        photographs = _read(frost_dir)
    # Run on the host, outside the graph of the input pipeline.
    with tf.init_scope(), tf.device("CPU:0"):
        resized = [
            tf.image.resize(
                photo, np.round(np.multiply(photo.shape[:2], scale))
            )
            for photo in photographs
        ]
        return [np.round(photo.numpy()).astype(np.uint8) for photo in resized]


def _read(folder):
    names = sorted(
        name for name in os.listdir(folder) if name.lower().endswith(_ENDINGS)
    )
    if not names:
        raise ValueError(
            f"`frost_dir` must hold images, files that end in {_ENDINGS}. "
            f"Received: frost_dir={folder!r}"
        )
    with tf.init_scope(), tf.device("CPU:0"):
        return [
            tf.io.decode_image(
                tf.io.read_file(os.path.join(folder, name)),
                channels=3,
                expand_animations=False,
            ).numpy()
            for name in names[:5]
        ]


def _texture(seed, mean, scale):
    """Returns a texture of ice needles, in patches with one direction each."""
    rng = np.random.RandomState(seed)
    across, down = np.meshgrid(
        np.fft.rfftfreq(_TEXTURE_SIZE), np.fft.fftfreq(_TEXTURE_SIZE)
    )
    radius = np.hypot(across, down)

    def filtered(response):
        noise = rng.standard_normal((_TEXTURE_SIZE, _TEXTURE_SIZE))
        field = np.fft.irfft2(np.fft.rfft2(noise) * response)
        return field / field.std()

    patches = np.stack(
        [
            filtered(np.exp(-((radius * 60) ** 2)))
            for _ in range(_NUM_DIRECTIONS)
        ]
    )
    shares = np.exp(4 * patches)
    shares /= shares.sum(axis=0)
    needles = 0.0
    for share, angle in zip(
        shares, rng.uniform(0, np.pi, _NUM_DIRECTIONS), strict=True
    ):
        along = across * np.cos(angle) + down * np.sin(angle)
        aside = down * np.cos(angle) - across * np.sin(angle)
        # The filtered noise is long in one direction and thin in the other;
        # needles are bright where it crosses 0.
        lines = filtered(np.exp(-((along * 90) ** 2) - (aside * 9) ** 2))
        needles = needles + share * np.exp(-3 * np.abs(lines))
    clouds = filtered(1 / np.maximum(radius, 1 / 128) ** 1.5)
    ice = clouds + needles / needles.std()
    ice = (ice - ice.mean()) / ice.std()
    return np.clip(ice[..., np.newaxis] * scale + mean, 0, 255)


def _plasma(draws, size, decay):
    """Returns fractals of the diamond-square method, `(batch, size, size)`.

    They have values in [0, 1] and are cut from a periodic square whose size is
    the next power of two.
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
    """Doubles a grid; new points are means of four neighbours plus noise."""
    batch, count, _ = grid.shape
    # For the point in the middle of four, right of a point, and below it.
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
    """Returns the values of the next (1) or the previous (-1) points."""
    places = np.arange(step, grid.shape[axis] + step)
    return grid.take(places, axis=axis, mode="wrap")


@functools.lru_cache(maxsize=8)
def _raised(amount):
    """Returns the new level for each HSV value and level, uint8 `(65536,)`."""
    levels = np.arange(256, dtype=np.float32) / 255
    value = levels[:, np.newaxis]
    raised = np.minimum(value + np.float32(amount), np.float32(1))
    # Hue and saturation do not change: all channels grow by the same factor,
    # and black becomes grey.
    grown = np.minimum(levels, value) * (raised / np.maximum(value, core.TINY))
    return core.to_pixels(grown + (value == 0) * raised).ravel()


@functools.lru_cache(maxsize=4)
def _compiled_drops(size):
    signature = [tf.TensorSpec([None, size, size, 1], tf.float32)]
    return tf.function(_drops, input_signature=signature, autograph=False)


def _drops(depth):
    """Returns the brightness of water, a relief of the drops up to 1."""
    levels = tf.floor(tf.clip_by_value(depth, 0.0, 1.0) * 255)
    distance = tf.minimum(distance_to_edges(levels, 50, 150), 20.0)
    distance = _equalize(_whole_means(distance))
    relief = tf.clip_by_value(filter_3x3(distance, _RELIEF), 0.0, 255.0)
    relief = levels * tf.round(filter_3x3(relief, _MEAN))
    highest = tf.reduce_max(relief, axis=(1, 2), keepdims=True)
    return tf.math.divide_no_nan(relief, highest)


def _whole_means(images):
    """Returns means over 3 x 3 pixels, rounded down."""
    # The offset exceeds the rounding errors, so integers do not change.
    return tf.floor(filter_3x3(images, _MEAN) + 1e-5)


def _equalize(images):
    """Equalises the histogram of each image `(batch, size, size, 1)`."""
    shape = tf.shape(images)
    levels = tf.reshape(tf.cast(images, tf.int32), [shape[0], -1])
    counts = tf.math.bincount(
        levels, minlength=256, maxlength=256, axis=-1, dtype=tf.float32
    )
    up_to = tf.cumsum(counts, axis=-1)
    # The number of pixels with the lowest level of the image.
    least = tf.reduce_min(levels, axis=-1, keepdims=True)
    lowest = tf.gather(counts, least, axis=1, batch_dims=1)
    total = up_to[:, -1:]
    table = tf.round(
        tf.math.divide_no_nan((up_to - lowest) * 255, total - lowest)
    )
    even = tf.gather(table, levels, axis=1, batch_dims=1)
    flat = tf.where(total > lowest, even, tf.cast(levels, tf.float32))
    return tf.reshape(flat, shape)


def distance_to_edges(images, low, high):
    """Returns each pixel's distance to the nearest edge, in pixels.

    They are 5 x 5 chamfer distances, exact up to 20 and larger than 20 if there
    are no edges.

    Args:
        images: `(batch, size, size, 1)`, 0 to 255.
        low: As in `find_edges`.
        high: As in `find_edges`.
    """
    far = 1e3
    edges = find_edges(images, low, high)
    distance = tf.where(edges, 0.0, far)
    steps = np.full((5, 5), far)
    for row, column in np.ndindex(5, 5):
        offsets = sorted((abs(row - 2), abs(column - 2)))
        if offsets == [0, 0]:
            steps[row, column] = 0
        elif offsets in ([0, 1], [1, 1], [1, 2]):
            steps[row, column] = {1: _STRAIGHT, 2: _DIAGONAL, 3: _KNIGHT}[
                sum(offsets)
            ]
    # Erosion subtracts the kernel and takes the minimum.
    kernel = tf.constant(-steps[:, :, np.newaxis], tf.float32)
    # Each iteration extends distances by at least one pixel, and `_drops`
    # clips them at 20.
    for _ in range(20):
        distance = tf.nn.erosion2d(
            distance, kernel, [1] * 4, "SAME", "NHWC", [1] * 4
        )
    return distance


def find_edges(images, low, high):
    """Returns a boolean mask of the edges that Canny's method finds.

    Args:
        images: `(batch, size, size, 1)`, 0 to 255.
        low: Gradients above this are edges if they touch another edge.
        high: Gradients above this are always edges.
    """
    padded = tf.pad(images, [[0, 0], [1, 1], [1, 1], [0, 0]], "SYMMETRIC")
    kernels = np.stack([_SOBEL, _SOBEL.T], axis=-1)[:, :, np.newaxis]
    gradient = tf.nn.conv2d(
        padded, tf.constant(kernels, tf.float32), 1, "VALID"
    )
    across, down = gradient[..., :1], gradient[..., 1:]
    strength = tf.abs(across) + tf.abs(down)
    thin = _is_ridge(strength, across, down)
    weak = thin & (strength > low)
    edges = tf.cast(thin & (strength > high), tf.float32)
    weak = tf.cast(weak, tf.float32)

    def grow(edges, grown):
        return grown, weak * tf.nn.max_pool2d(grown, 3, 1, "SAME")

    edges, _ = tf.while_loop(
        lambda edges, grown: tf.reduce_any(edges != grown),
        grow,
        (tf.zeros_like(edges) - 1, edges),
    )
    return edges > 0


def _is_ridge(strength, across, down):
    """Returns whether no neighbour in the gradient's direction is stronger."""
    size = strength.shape[1]
    padded = tf.pad(strength, [[0, 0], [1, 1], [1, 1], [0, 0]])

    def neighbour(row, column):
        return padded[
            :, 1 + row : 1 + row + size, 1 + column : 1 + column + size
        ]

    slope = np.tan(np.pi / 8)
    level = tf.abs(down) < slope * tf.abs(across)
    upright = tf.abs(across) < slope * tf.abs(down)
    falling = across * down >= 0
    result = False
    for chosen, (row, column) in (
        (level, (0, 1)),
        (upright, (1, 0)),
        (~level & ~upright & falling, (1, 1)),
        (~level & ~upright & ~falling, (1, -1)),
    ):
        before, after = neighbour(-row, -column), neighbour(row, column)
        # Of two equally strong pixels one is a ridge; on a diagonal neither is,
        # as in the published code.
        beyond = strength > after if row and column else strength >= after
        result |= chosen & (strength > before) & beyond
    return result


def filter_3x3(images, kernel):
    """Correlates images with a 3 x 3 kernel, with reflected borders."""
    padded = tf.pad(images, [[0, 0], [1, 1], [1, 1], [0, 0]], "REFLECT")
    kernel = tf.constant(kernel[:, :, np.newaxis, np.newaxis], tf.float32)
    return tf.nn.conv2d(padded, kernel, 1, "VALID")
