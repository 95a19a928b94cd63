"""Corruptions by name and severity."""

import difflib

import numpy as np
import tensorflow as tf

from caltrain_tf.data.corruptions.blur import gaussian_blur
from caltrain_tf.data.corruptions.blur import zoom_blur
from caltrain_tf.data.corruptions.color import brightness
from caltrain_tf.data.corruptions.color import contrast
from caltrain_tf.data.corruptions.color import saturate
from caltrain_tf.data.corruptions.defocus_blur import defocus_blur
from caltrain_tf.data.corruptions.digital import jpeg_compression
from caltrain_tf.data.corruptions.digital import pixelate
from caltrain_tf.data.corruptions.draws import Draws
from caltrain_tf.data.corruptions.elastic_transform import elastic_transform
from caltrain_tf.data.corruptions.frost import frost
from caltrain_tf.data.corruptions.glass_blur import glass_blur
from caltrain_tf.data.corruptions.motion_blur import motion_blur
from caltrain_tf.data.corruptions.noise import gaussian_noise
from caltrain_tf.data.corruptions.noise import impulse_noise
from caltrain_tf.data.corruptions.noise import shot_noise
from caltrain_tf.data.corruptions.noise import speckle_noise
from caltrain_tf.data.corruptions.rounding import to_pixels
from caltrain_tf.data.corruptions.rows import by_rows
from caltrain_tf.data.corruptions.spatter import spatter
from caltrain_tf.data.corruptions.strengths import STRENGTHS
from caltrain_tf.data.corruptions.weather import fog
from caltrain_tf.data.corruptions.weather import snow

_FUNCTIONS = {
    function.__name__: function
    for function in (
        gaussian_noise,
        shot_noise,
        impulse_noise,
        defocus_blur,
        glass_blur,
        motion_blur,
        zoom_blur,
        snow,
        frost,
        fog,
        brightness,
        contrast,
        elastic_transform,
        pixelate,
        jpeg_compression,
        gaussian_blur,
        saturate,
        spatter,
        speckle_noise,
    )
}
# These take and return pixels, the others float32 in [0, 1].
_OF_PIXELS = (gaussian_noise, shot_noise, impulse_noise, speckle_noise)
SEVERITIES = (1, 2, 3, 4, 5)
# The 15 that results are reported on, and 4 for choosing settings.
NAMES = tuple(_FUNCTIONS)[:15]
EXTRA_NAMES = tuple(_FUNCTIONS)[15:]
# The strengths of CIFAR-10-C are for images up to this size.
_LARGEST_SMALL_SIZE = 64


def get(name, severity, *, strengths=None, seed=0, frost_dir=None):
    """Returns a corruption as a function of images and their places.

    It fits `ImageData.eval_batches(..., transform=)`. What becomes of an image
    depends on its place in the data set and on the arguments here, not on the
    batch that it comes in.

    Args:
        name: One of `NAMES` or `EXTRA_NAMES`.
        severity: 1 to 5.
        strengths: `"cifar"` for those of CIFAR-10-C and CIFAR-100-C,
            `"imagenet"` for those of ImageNet-C. By default the former up to
            64 pixels.
        seed: Of the random numbers.
        frost_dir: A folder of frost photographs for `"frost"`, which generates
            a texture without them.

    Returns:
        A function from uint8 images `(batch, size, size, 3)` and places
        `(batch,)` to uint8 images.

    Example:
        >>> import caltrain_tf as ct
        >>> darker = ct.data.corruptions.get("contrast", severity=5)
        >>> image = tf.constant([[[0] * 3, [200] * 3], [[0] * 3, [200] * 3]])
        >>> image = tf.cast(image, tf.uint8)[tf.newaxis]
        >>> darker(image, [0])[0, 0, :, 0].numpy()
        array([ 85, 115], dtype=uint8)
    """
    _check(name, severity, strengths, seed)
    function = _FUNCTIONS[name]
    options = {"frost_dir": frost_dir} if name == "frost" else {}
    index = list(_FUNCTIONS).index(name)
    set_number = (seed * len(_FUNCTIONS) + index) * len(SEVERITIES) + severity

    # NumPy's code is not for TensorFlow to convert, and slow if it does.
    @tf.autograph.experimental.do_not_convert
    def corrupt(images, places):
        images, places = map(tf.convert_to_tensor, (images, places))
        _check_images(images)
        kind = strengths
        if kind is None:
            small = images.shape[1] <= _LARGEST_SMALL_SIZE
            kind = "cifar" if small else "imagenet"
        strength = STRENGTHS[kind][name][severity - 1]
        if function is jpeg_compression:
            return function(images, *strength)

        if function is frost:
            # Once here: what is wrong with the folder is an error now, not one
            # of the input pipeline later.
            image = np.zeros((1, 3, *images.shape[1:3]), np.float32)
            frost(image, Draws([0], set_number), *strength, **options)

        def few(pixels, places):
            draws = Draws(places, set_number)
            if function in _OF_PIXELS:
                return function(pixels, draws, *strength)
            planes = np.moveaxis(pixels, -1, 1).astype(np.float32, order="C")
            # Every level of a pixel survives this and the way back.
            planes /= 255
            planes = function(planes, draws, *strength, **options)
            planes = to_pixels(planes)
            corrupted = np.empty_like(pixels)
            # One by one, which takes a fourth of the time of all at once.
            for channel in range(3):
                corrupted[..., channel] = planes[:, channel]
            return corrupted

        return by_rows(few, images, places)

    return corrupt


def _check(name, severity, strengths, seed):
    if name not in _FUNCTIONS:
        near = difflib.get_close_matches(str(name), _FUNCTIONS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"`name` must be one of {NAMES + EXTRA_NAMES}.{hint} "
            f"Received: name={name!r}"
        )
    if severity not in SEVERITIES:
        raise ValueError(
            f"`severity` must be one of {SEVERITIES}. "
            f"Received: severity={severity!r}"
        )
    if strengths is not None and strengths not in STRENGTHS:
        raise ValueError(
            f"`strengths` must be one of {tuple(STRENGTHS)} or None. "
            f"Received: strengths={strengths!r}"
        )
    if not isinstance(seed, int) or not 0 <= seed < 2**31:
        raise ValueError(
            f"`seed` must be an integer from 0 to 2**31 - 1. "
            f"Received: seed={seed!r}"
        )


def _check_images(images):
    shape = images.shape
    if (
        images.dtype != tf.uint8
        or shape.rank != 4
        or (shape[1] != shape[2] or shape[3] != 3)
    ):
        raise ValueError(
            "`images` must be uint8 of shape (batch, size, size, 3). "
            f"Received: dtype={images.dtype.name}, shape={shape}"
        )
