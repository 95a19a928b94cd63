"""Common code of all corruptions: registration, lookup and calls."""

import numpy as np
import tensorflow as tf

from caltrain_tf import checks

SEVERITIES = (1, 2, 3, 4, 5)
# The 15 corruptions of the benchmark: noise, blur, weather and digital.
NAMES = (
    *("gaussian_noise", "shot_noise", "impulse_noise"),
    *("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    *("snow", "frost", "fog", "brightness"),
    *("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
)
# Four more, one of each kind, for tuning; read from published sets only.
EXTRA_NAMES = ("gaussian_blur", "saturate", "spatter", "speckle_noise")

# Images up to this size have the strengths of CIFAR-10-C.
LARGEST_SMALL_SIZE = 64
# Filled by `corruption`: name -> (function, strengths, those of ImageNet-C).
_REGISTRY = {}


def corruption(cifar, imagenet):
    """Registers a corruption with its parameters in the published sets.

    It is a function of an image, float64 `(size, size, 3)` in [0, 1], an
    `np.random.Generator` and the parameters of a severity. It returns an image
    of the same shape, which is clipped to [0, 1].
    """

    def register(function):
        _REGISTRY[function.__name__] = function, cifar, imagenet
        return function

    return register


def get(name, severity, *, seed=0):
    """Returns a corruption as a function of images and their places.

    It can be passed to `ImageData.eval_batches(..., transform=)`. The corrupted
    image depends on the image, its place in the data set and the arguments of
    `get`, but not on the other images of the batch. Images of up to 64 pixels
    get the strengths of CIFAR-10-C, larger ones those of ImageNet-C. Frost is a
    generated texture with the colours of the published photographs.

    Args:
        name: One of `NAMES`.
        severity: 1 to 5.
        seed: Seed of the random numbers.

    Returns:
        A function from uint8 images `(batch, size, size, 3)` and places
        `(batch,)` to a uint8 tensor.

    Example:
        >>> import numpy as np
        >>> import caltrain_tf as ct
        >>> darker = ct.data.corruptions.get("contrast", severity=5)
        >>> images = np.zeros((1, 2, 2, 3), np.uint8)
        >>> images[:, :, 1] = 200
        >>> darker(images, [0])[0, 0, :, 0].numpy()
        array([ 85, 115], dtype=uint8)

    Reference:
        Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to
        Common Corruptions and Perturbations", 2019.
    """
    number = NAMES.index(checks.choice("name", name, NAMES))
    checks.choice("severity", severity, SEVERITIES)
    seed = checks.count("seed", seed, low=0)
    function, cifar, imagenet = _REGISTRY[name]
    total = len(NAMES + EXTRA_NAMES)
    stream = (seed * total + number) * len(SEVERITIES) + severity

    def of_arrays(images, places):
        small = images.shape[1] <= LARGEST_SMALL_SIZE
        parameters = (cifar if small else imagenet)[severity - 1]
        corrupted = np.empty_like(images)
        for row, (image, place) in enumerate(zip(images, places, strict=True)):
            # Its own generator makes an image independent of its batch.
            key = np.array([stream, place], np.uint64)
            rng = np.random.Generator(np.random.Philox(key=key))
            corrupted[row] = to_pixels(function(image / 255, rng, *parameters))
        return corrupted

    # AutoGraph must not convert NumPy code.
    @tf.autograph.experimental.do_not_convert
    def corrupt(images, places):
        images, places = map(tf.convert_to_tensor, (images, places))
        shape = images.shape
        is_square = len(shape) == 4 and shape[1] == shape[2] and shape[3] == 3
        if images.dtype != tf.uint8 or not is_square:
            raise ValueError(
                "`images` must be uint8 of shape (batch, size, size, 3). "
                f"Received: dtype={images.dtype.name}, shape={shape}"
            )
        corrupted = tf.numpy_function(
            of_arrays, [images, places], tf.uint8, stateful=False
        )
        return tf.ensure_shape(corrupted, shape)

    return corrupt


def to_pixels(image):
    """Returns uint8 levels, rounded down as in the published data sets."""
    return (np.clip(image, 0, 1) * 255).astype(np.uint8)
