"""Common code of all corruptions: registration, lookup and calls.

A corruption is a function of one image, a random generator and the parameters
of its strength. The decorator `corruption` registers it with the published
strengths; `get` returns it by name and severity, as a function of a batch.

Reference:
    Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common
    Corruptions and Perturbations", 2019.
"""

import difflib

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
# Avoids division by zero; no nonzero level is that small.
_TINY = 1e-9
# Filled by `corruption`: name -> (function, strengths by kind of data set).
_REGISTRY = {}


def corruption(cifar, imagenet):
    """Returns a decorator that registers a corruption under its function name.

    Args:
        cifar: The parameters of its strength in CIFAR-10-C and CIFAR-100-C, one
            tuple per severity.
        imagenet: The same for ImageNet-C.

    Returns:
        A decorator for functions of an image, float64 `(size, size, 3)` in
        [0, 1], an `np.random.Generator` and the parameters of the strength.
        They return an image of the same shape, which is clipped to [0, 1].
    """

    def register(function):
        strengths = {"cifar": cifar, "imagenet": imagenet}
        _REGISTRY[function.__name__] = function, strengths
        return function

    return register


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
    function, published = _REGISTRY[name]
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
        function: A function that `corruption` registers.
        strengths: The parameters of the strength by kind of data set.
        kind: Kind of data set; chosen by the size of the images if `None`.
        key: A number of this corruption, severity and seed.
        options: Further arguments of the function.
    """

    def __init__(self, function, strengths, kind, key, options):
        self._function = function
        self._strengths = strengths
        self._kind = kind
        self._key = key
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
        corrupted = np.empty_like(images)
        for row, (image, place) in enumerate(zip(images, places, strict=True)):
            # Its own generator makes an image independent of its batch.
            key = np.array([self._key, place], np.uint64)
            rng = np.random.Generator(np.random.Philox(key=key))
            corrupted[row] = to_pixels(
                self._function(
                    image / 255, rng, *self._strengths[kind], **self._options
                )
            )
        return corrupted


def to_pixels(image):
    """Returns uint8 levels, rounded down as in the published data sets."""
    return (np.clip(image, 0, 1) * 255).astype(np.uint8)


def hsv(image):
    """Returns value and saturation of an image, and a form of its hue.

    An image is `value * (1 - saturation * hue)`, where `hue` has 0 for the
    largest channel of a pixel and 1 for the smallest one.
    """
    value = _largest(image)
    gap = value - image
    chroma = _largest(gap)
    saturation = chroma / np.maximum(value, _TINY)
    hue = gap / np.maximum(chroma, _TINY)
    # Grey pixels have no hue; theirs is red.
    hue[..., 1:] += chroma == 0
    return value, saturation, hue


def _largest(image):
    # Faster than the maximum over the last axis, which has three values.
    red, green, blue = np.moveaxis(image, -1, 0)
    return np.maximum(np.maximum(red, green), blue)[..., np.newaxis]


def pillow():
    """Returns the module `PIL.Image`."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            "This corruption needs the package pillow: "
            'pip install "caltrain_tf[baselines]"'
        ) from error
    return Image
