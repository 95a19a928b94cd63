"""Common code of all corruptions: registration, lookup and random numbers.

A corruption is a function of images, their random numbers and the parameters of
its strength. The decorator `corruption` registers it with the published
strengths; `get` returns it by name and severity, as a function of a batch.

Reference:
    Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common
    Corruptions and Perturbations", 2019.
"""

import difflib
import functools
import itertools
import math

import numpy as np
import tensorflow as tf

SEVERITIES = (1, 2, 3, 4, 5)
# The 15 corruptions of the benchmark: noise, blur, weather and digital.
NAMES = (
    *("gaussian_noise", "shot_noise", "impulse_noise"),
    *("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    *("snow", "frost", "fog", "brightness"),
    *("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
)
# Four more, one of each kind, for tuning hyperparameters.
EXTRA_NAMES = ("gaussian_blur", "saturate", "spatter", "speckle_noise")

# Images up to this size have the strengths of CIFAR-10-C by default.
_LARGEST_SMALL_SIZE = 64
# Number of values that are corrupted at once: few enough that intermediate
# results stay in the L2 cache, and enough that the overhead of NumPy's calls is
# small. Whole batches take several times as long.
_VALUES_AT_ONCE = 2**17
# Avoids division by zero; no nonzero level is that small.
TINY = np.float32(1e-9)
# Above the rounding errors of float32 and below visible differences.
_TOLERANCE = np.float32(1e-4)
# The generator "SplitMix64" of Steele, Lea and Flood, 2014: a hash of a counter
# that is incremented by the golden ratio.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIXERS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))

# Filled by `corruption`: name -> (function of a batch, strengths).
_DECLARED = {}


def corruption(cifar, imagenet, takes="planes"):
    """Returns a decorator that registers a corruption under its function name.

    Args:
        cifar: The parameters of its strength in CIFAR-10-C and CIFAR-100-C, one
            tuple per severity.
        imagenet: The same for ImageNet-C.
        takes: What the function takes and returns: `"pixels"`, uint8
            `(batch, size, size, 3)`; `"floats"`, float32 images in [0, 1] of
            the same shape; `"planes"`, float32 images `(batch, 3, size, size)`;
            or `"batch"`, the pixels of the whole batch instead of a few images
            at a time.

    Returns:
        A decorator that returns the function unchanged. The function's
        arguments are the images, their `Draws`, and the parameters of the
        strength. The result for an image must not depend on other images.
    """
    wrap = {
        "pixels": _by_rows,
        "floats": lambda function: _by_rows(_of_floats(function)),
        "planes": lambda function: _by_rows(_of_planes(function)),
        "batch": lambda function: function,
    }[takes]

    def declare(function):
        strengths = {"cifar": cifar, "imagenet": imagenet}
        _DECLARED[function.__name__] = wrap(function), strengths
        return function

    return declare


def get(name, severity, *, strengths=None, seed=0, frost_dir=None):
    """Returns a corruption as a function of images and their places.

    It can be passed to `ImageData.eval_batches(..., transform=)`. The corrupted
    image depends on the image, its place in the data set and the arguments of
    `get`, but not on the other images of the batch.

    Args:
        name: One of `NAMES` or `EXTRA_NAMES`.
        severity: 1 to 5.
        strengths: `"cifar"` for the strengths of CIFAR-10-C and CIFAR-100-C,
            `"imagenet"` for those of ImageNet-C. By default `"cifar"` for
            images of up to 64 pixels and `"imagenet"` for larger ones.
        seed: Seed of the random numbers.
        frost_dir: A folder of frost photographs for `"frost"`. By default those
            of the package `imagecorruptions` if it is installed, otherwise a
            generated texture.

    Returns:
        A `Corruption`: a function from uint8 images `(batch, size, size, 3)`
        and places `(batch,)` to a uint8 tensor.

    Example:
        >>> import numpy as np
        >>> import caltrain_tf as ct
        >>> darker = ct.data.corruptions.get("contrast", severity=5)
        >>> images = np.zeros((1, 2, 2, 3), np.uint8)
        >>> images[:, :, 1] = 200
        >>> darker(images, [0])[0, 0, :, 0].numpy()
        array([ 85, 115], dtype=uint8)
    """
    names = NAMES + EXTRA_NAMES
    if name not in names:
        near = difflib.get_close_matches(str(name), names, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"`name` must be one of {names}.{hint} Received: name={name!r}"
        )
    if severity not in SEVERITIES:
        raise ValueError(
            f"`severity` must be one of {SEVERITIES}. "
            f"Received: severity={severity!r}"
        )
    function, published = _DECLARED[name]
    if strengths is not None and strengths not in published:
        raise ValueError(
            f"`strengths` must be one of {tuple(published)} or None. "
            f"Received: strengths={strengths!r}"
        )
    if not isinstance(seed, int) or not 0 <= seed < 2**31:
        raise ValueError(
            f"`seed` must be an integer from 0 to 2**31 - 1. "
            f"Received: seed={seed!r}"
        )
    return Corruption(
        function,
        {kind: each[severity - 1] for kind, each in published.items()},
        strengths,
        (seed * len(names) + names.index(name)) * len(SEVERITIES) + severity,
        {"frost_dir": frost_dir} if name == "frost" else {},
    )


class Corruption:
    """A corruption of a certain severity, as returned by `get`.

    Args:
        function: Function of pixels, `Draws` and the parameters of a strength.
        strengths: The parameters of the strength by kind of data set.
        kind: Kind of data set; chosen by the size of the images if `None`.
        set_number: As in `Draws`.
        options: Further arguments of the function.
    """

    def __init__(self, function, strengths, kind, set_number, options):
        self._function = function
        self._strengths = strengths
        self._kind = kind
        self._set_number = set_number
        self._options = options

    # AutoGraph must not convert NumPy code.
    @tf.autograph.experimental.do_not_convert
    def __call__(self, images, places):
        """Returns the corrupted images, a uint8 tensor.

        Args:
            images: uint8 `(batch, size, size, 3)`.
            places: Places of the images in their data set, `(batch,)`.
        """
        images, places = map(tf.convert_to_tensor, (images, places))
        dtype, shape = images.dtype.as_numpy_dtype, images.shape
        if (
            dtype != np.uint8
            or len(shape) != 4
            or (shape[1] != shape[2] or shape[3] != 3)
        ):
            raise ValueError(
                "`images` must be uint8 of shape (batch, size, size, 3). "
                f"Received: dtype={np.dtype(dtype).name}, shape={shape}"
            )
        if hasattr(images, "numpy"):
            corrupted = self._of_arrays(images.numpy(), places.numpy())
            return tf.convert_to_tensor(corrupted)
        # A trial run, so that unreadable frost photographs raise an error here
        # and not later in the input pipeline.
        self._of_arrays(np.zeros((1, *shape[1:]), dtype), np.zeros(1, int))
        corrupted = tf.numpy_function(
            self._of_arrays, [images, places], tf.uint8, stateful=False
        )
        return tf.ensure_shape(corrupted, shape)

    def _of_arrays(self, images, places):
        kind = self._kind
        if kind is None:
            small = images.shape[1] <= _LARGEST_SMALL_SIZE
            kind = "cifar" if small else "imagenet"
        draws = Draws(places, self._set_number)
        # Run on the host, outside the graph of the input pipeline.
        with tf.init_scope(), tf.device("CPU:0"):
            return self._function(
                images, draws, *self._strengths[kind], **self._options
            )


def _by_rows(function):
    """Returns a function that processes a batch a few images at a time."""

    def whole(images, draws, *args, **options):
        result = np.empty_like(images)
        # Parts of about equal size, because the overhead of a small last part
        # would be as large as that of a full one.
        num_parts = min(
            max(1, round(images.size / _VALUES_AT_ONCE)), len(images)
        )
        bounds = np.linspace(0, len(images), num_parts + 1).astype(int)
        for start, stop in itertools.pairwise(bounds):
            rows = slice(start, stop)
            result[rows] = function(
                images[rows], draws.of_rows(rows), *args, **options
            )
        return result

    return whole


def _of_floats(function):
    """Returns a function of pixels for a function of values in [0, 1].

    Args:
        function: Function of float32 images and other arguments that returns
            float32 images.
    """

    def of_pixels(pixels, *args, **options):
        images = pixels.astype(np.float32)
        # Exact: `to_pixels` restores each of the 256 levels.
        images /= 255
        return to_pixels(function(images, *args, **options))

    return of_pixels


def _of_planes(function):
    """Returns a function of pixels for a function of planes in [0, 1].

    Args:
        function: As in `_of_floats`, but for images `(batch, 3, size, size)`.
    """
    of_pixels = _of_floats(function)

    def of_channels_last(pixels, *args, **options):
        # Channel by channel takes a fourth of the time of a transposed copy.
        planes = np.stack([pixels[..., channel] for channel in range(3)], 1)
        planes = of_pixels(planes, *args, **options)
        corrupted = np.empty_like(pixels)
        for channel in range(3):
            corrupted[..., channel] = planes[:, channel]
        return corrupted

    return of_channels_last


class Draws:
    """Random arrays for a batch, each row from its image's own seed.

    The values for an image depend on its place, on `set_number` and on the
    order of the calls, but not on the other images of the batch. They are
    hashes of seed, place and index, because creating one NumPy generator per
    image costs more than most corruptions.

    Args:
        places: The images' places in their split, `(batch,)`.
        set_number: The number of the corrupted set, below 2**58.
    """

    def __init__(self, places, set_number):
        self._places = np.asarray(places).astype(np.uint64)
        self._set_number = set_number
        self._num_draws = 0

    def of_rows(self, rows):
        """Returns the draws of some of the images, from the first draw on."""
        return Draws(self._places[rows], self._set_number)

    def bits(self, shape):
        """Returns random bits, uint32 `(batch, *shape)`."""
        number = (self._set_number << 6) + self._num_draws
        self._num_draws += 1
        count = math.prod(shape)
        # Each 64-bit word holds two numbers.
        steps = np.arange(1, -(-count // 2) + 1, dtype=np.uint64) * _GOLDEN
        start = _mix(np.full(1, number, np.uint64) + _GOLDEN)
        keys = _mix(self._places + start)
        words = _mix(keys[:, np.newaxis] + steps)
        return words.view(np.uint32)[:, :count].reshape(-1, *shape)

    def uniform(self, shape, low=0.0, high=1.0):
        """Returns float32 values in [low, high), `(batch, *shape)`."""
        values = _levels(self.bits(shape))
        values *= np.float32((high - low) * 2.0**-24)
        values += np.float32(low)
        return values

    def normal(self, shape, mean=0.0, scale=1.0):
        """Returns normal float32 values, `(batch, *shape)`."""
        count = math.prod(shape)
        half = -(-count // 2)
        # Box-Muller transform: two normal values from two uniform ones.
        values = _levels(self.bits([2, half]))
        radius = values[:, 0] + np.float32(0.5)
        radius *= np.float32(2.0**-24)
        np.log(radius, out=radius)
        radius *= np.float32(-2)
        np.sqrt(radius, out=radius)
        radius *= np.float32(scale)
        angle = values[:, 1] * np.float32(2 * math.pi * 2.0**-24)
        np.cos(angle, out=values[:, 0])
        np.sin(angle, out=values[:, 1])
        values *= radius[:, np.newaxis]
        values += np.float32(mean)
        values = values.reshape(len(values), -1)[:, :count]
        return values.reshape(-1, *shape)

    def integers(self, shape, low, high):
        """Returns int32 values from `low` to `high`, both included."""
        values = self.bits(shape)
        values >>= np.uint32(16)
        values *= np.uint32(high - low + 1)
        values >>= np.uint32(16)
        values = values.view(np.int32)
        values += np.int32(low)
        return values


def _mix(words):
    """Hashes 64-bit words in place."""
    shifted = np.empty_like(words)
    for shift, factor in _MIXERS:
        words ^= np.right_shift(words, np.uint64(shift), out=shifted)
        words *= np.uint64(factor)
    words ^= np.right_shift(words, np.uint64(31), out=shifted)
    return words


def _levels(bits):
    """Returns integers below 2**24, which float32 represents exactly."""
    bits >>= np.uint32(8)
    return bits.astype(np.float32)


def to_pixels(images):
    """Returns uint8 levels, rounded down as in the published data sets."""
    levels = images * np.float32(255)
    levels += _TOLERANCE
    # Clipping int16 values takes a fraction of the time of float32.
    levels = levels.astype(np.int16)
    np.clip(levels, 0, 255, out=levels)
    return levels.astype(np.uint8)


def truncate(images):
    """Returns values in [0, 1], rounded down to the 256 levels of pixels."""
    return _floored(images, _TOLERANCE)


def nearest(images):
    """Returns values in [0, 1], rounded to the nearest of the 256 levels."""
    return _floored(images, _TOLERANCE + np.float32(0.5))


def _floored(images, offset):
    """Adds `offset` levels to values in [0, 1] and rounds down to a level.

    It works in place, because allocating memory costs more than the arithmetic.
    """
    levels = np.clip(images, np.float32(0), np.float32(1))
    levels *= np.float32(255)
    levels += offset
    np.floor(levels, out=levels)
    levels /= np.float32(255)
    return levels


def fold(indices, size, border):
    """Returns the indices of the pixels that extend an image at its borders.

    Args:
        indices: An array of integers.
        size: The number of pixels.
        border: `"edge"`: a a|a b c|c c; `"symmetric"`: b a|a b c|c b;
            `"reflect"`: c b|a b c|b a.

    Example:
        >>> fold(np.arange(-2, 5), 3, "symmetric").tolist()
        [1, 0, 0, 1, 2, 2, 1]
        >>> fold(np.arange(-2, 5), 3, "reflect").tolist()
        [2, 1, 0, 1, 2, 1, 0]
    """
    if border == "edge":
        return np.clip(indices, 0, size - 1)
    symmetric = border == "symmetric"
    period = 2 * size if symmetric else max(2 * size - 2, 1)
    indices = indices % period
    return np.minimum(indices, period - int(symmetric) - indices)


def pad(images, margins, border):
    """Returns images with a border; it is faster than `np.pad`.

    Args:
        images: An array.
        margins: Dictionary from axes to the numbers of pixels before and after.
        border: As in `fold`.

    Example:
        >>> pad(np.array([[1, 2, 3]]), {1: (1, 2)}, "reflect")
        array([[2, 1, 2, 3, 2, 1]])
    """
    shape, inside = list(images.shape), [slice(None)] * images.ndim
    for axis, (before, after) in margins.items():
        shape[axis] += before + after
        inside[axis] = slice(before, before + images.shape[axis])
    padded = np.empty(shape, images.dtype)
    padded[tuple(inside)] = images
    for axis, (before, after) in margins.items():
        size = images.shape[axis]
        # The border of each axis includes the borders of the axes before it.
        inside[axis] = slice(None)
        along = padded[tuple(inside)].swapaxes(0, axis)
        if border == "edge":
            along[:before] = along[before]
            along[before + size :] = along[before + size - 1]
            continue
        sources = fold(np.arange(-before, size + after), size, border) + before
        for place in (*range(before), *range(before + size, len(sources))):
            along[place] = along[sources[place]]
    return padded


@functools.lru_cache(maxsize=32)
def blur_matrix(size, sigma, truncate=4.0, border="edge"):
    """Returns the matrix of a Gaussian blur, `(size, size)`.

    Args:
        size: The number of pixels.
        sigma: The standard deviation in pixels; 0 means no blur.
        truncate: Where the Gaussian is truncated, in standard deviations.
        border: As in `fold`.
    """
    radius = int(truncate * sigma + 0.5)
    offsets = np.arange(-radius, radius + 1)
    weights = np.exp(-0.5 * (offsets / max(sigma, 1e-9)) ** 2)
    weights /= weights.sum()
    matrix = np.zeros((size, size))
    rows = np.arange(size)[:, np.newaxis]
    columns = fold(rows + offsets, size, border)
    np.add.at(matrix, (rows, columns), weights)
    return matrix.astype(np.float32)


@functools.lru_cache(maxsize=32)
def zoom_matrix(size, factor):
    """Returns the matrix that enlarges the centre, `(size, size)`.

    The centres of the first and last pixel of the part that is kept become the
    centres of the first and last pixel of the enlarged part.
    """
    kept = math.ceil(size / factor)
    enlarged = round(kept * factor)
    first = (enlarged - size) // 2
    at = np.arange(first, first + size) * (kept - 1) / max(enlarged - 1, 1)
    below = np.minimum(at.astype(int), max(kept - 2, 0))
    share = at - below
    matrix = np.zeros((size, size))
    rows = np.arange(size)
    start = (size - kept) // 2
    np.add.at(matrix, (rows, start + below), 1 - share)
    above = np.minimum(below + 1, kept - 1)
    np.add.at(matrix, (rows, start + above), share)
    return matrix


@functools.lru_cache(maxsize=32)
def box_matrix(size, new_size):
    """Returns the matrix of a box-filter resizing, `(new_size, size)`.

    A pixel of the result is the mean of the pixels whose centres it covers or,
    when enlarging, the pixel that contains its centre.
    """
    scale = size / new_size
    support = max(scale, 1.0)
    centres = (np.arange(new_size) + 0.5) * scale
    distance = (np.arange(size) + 0.5 - centres[:, np.newaxis]) / support
    matrix = ((distance > -0.5) & (distance <= 0.5)).astype(float)
    matrix /= matrix.sum(axis=1, keepdims=True)
    return matrix.astype(np.float32)


def transform(images, matrix):
    """Applies a matrix to the rows and to the columns of square images.

    Args:
        images: `(batch, channels, size, size)`, float32.
        matrix: `(new_size, size)`.

    Returns:
        `(batch, channels, new_size, new_size)`.
    """
    matrix = matrix.astype(np.float32, copy=False)
    # NumPy is slower for many products with a transposed view than with a copy.
    # One large product would be faster, but not alongside other threads.
    return matrix @ (images @ matrix.T.copy())
