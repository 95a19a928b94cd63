"""Corruptions by name and severity."""

import difflib

from caltrain_tf.data.corruptions.blur import gaussian_blur
from caltrain_tf.data.corruptions.blur import zoom_blur
from caltrain_tf.data.corruptions.color import brightness
from caltrain_tf.data.corruptions.color import contrast
from caltrain_tf.data.corruptions.color import saturate
from caltrain_tf.data.corruptions.corruption import Corruption
from caltrain_tf.data.corruptions.corruption import of_floats
from caltrain_tf.data.corruptions.corruption import of_planes
from caltrain_tf.data.corruptions.defocus_blur import defocus_blur
from caltrain_tf.data.corruptions.digital import jpeg_compression
from caltrain_tf.data.corruptions.digital import pixelate
from caltrain_tf.data.corruptions.elastic_transform import elastic_transform
from caltrain_tf.data.corruptions.frost import frost
from caltrain_tf.data.corruptions.glass_blur import glass_blur
from caltrain_tf.data.corruptions.motion_blur import motion_blur
from caltrain_tf.data.corruptions.noise import gaussian_noise
from caltrain_tf.data.corruptions.noise import impulse_noise
from caltrain_tf.data.corruptions.noise import shot_noise
from caltrain_tf.data.corruptions.noise import speckle_noise
from caltrain_tf.data.corruptions.rows import by_rows
from caltrain_tf.data.corruptions.spatter import spatter
from caltrain_tf.data.corruptions.strengths import STRENGTHS
from caltrain_tf.data.corruptions.weather import fog
from caltrain_tf.data.corruptions.weather import snow

# These take pixels or float32 in [0, 1], the others that in planes.
_OF_PIXELS = (
    gaussian_noise,
    shot_noise,
    impulse_noise,
    brightness,
    speckle_noise,
)
_OF_FLOATS = (contrast, frost, motion_blur)


def _of_batch(function):
    # It has turns of its own.
    if function is jpeg_compression:
        return function
    if function in _OF_FLOATS:
        function = of_floats(function)
    elif function not in _OF_PIXELS:
        function = of_planes(function)
    return by_rows(function)


_FUNCTIONS = {
    function.__name__: _of_batch(function)
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
SEVERITIES = (1, 2, 3, 4, 5)
# The 15 that results are reported on, and 4 for choosing settings.
NAMES = tuple(_FUNCTIONS)[:15]
EXTRA_NAMES = tuple(_FUNCTIONS)[15:]


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
    _check(name, severity, strengths, seed)
    index = list(_FUNCTIONS).index(name)
    return Corruption(
        _FUNCTIONS[name],
        {kind: each[name][severity - 1] for kind, each in STRENGTHS.items()},
        strengths,
        (seed * len(_FUNCTIONS) + index) * len(SEVERITIES) + severity,
        {"frost_dir": frost_dir} if name == "frost" else {},
    )


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
