"""A corruption of a certain severity, as a function of images."""

import numpy as np
import tensorflow as tf

from caltrain_tf.data.corruptions.draws import Draws
from caltrain_tf.data.corruptions.rounding import to_pixels

# The strengths of CIFAR-10-C are for images up to this size.
_LARGEST_SMALL_SIZE = 64


class Corruption:
    """What `corruptions.get` returns.

    Args:
        function: From uint8 images `(batch, size, size, 3)`, `Draws` and the
            strength's numbers to such images. An image must not depend on the
            others.
        strengths: The strength's numbers, by the kind of data set.
        kind: Of the data set; by the images' size when `None`.
        set_number: As in `Draws`.
        options: Further arguments of the function.
    """

    def __init__(self, function, strengths, kind, set_number, options):
        """See the class."""
        self._function = function
        self._strengths = strengths
        self._kind = kind
        self._set_number = set_number
        self._options = options

    # NumPy's code is not for TensorFlow to convert, and slow if it does.
    @tf.autograph.experimental.do_not_convert
    def __call__(self, images, places):
        """Returns the corrupted images, a uint8 tensor.

        Args:
            images: uint8 `(batch, size, size, 3)`.
            places: Of the images in their data set, `(batch,)`.
        """
        images, places = map(tf.convert_to_tensor, (images, places))
        dtype, shape = images.dtype.as_numpy_dtype, images.shape
        _check(dtype, shape)
        if hasattr(images, "numpy"):
            corrupted = self.of_arrays(images.numpy(), places.numpy())
            return tf.convert_to_tensor(corrupted)
        # Once here: what is wrong with a folder of photographs is an error
        # now, not one of the input pipeline later, whose threads would all
        # read them.
        self.of_arrays(np.zeros((1, *shape[1:]), dtype), np.zeros(1, int))
        corrupted = tf.numpy_function(
            self.of_arrays, [images, places], tf.uint8, stateful=False
        )
        return tf.ensure_shape(corrupted, shape)

    def of_arrays(self, images, places):
        """Returns the same of arrays, as an array."""
        _check(images.dtype, images.shape)
        kind = self._kind
        if kind is None:
            small = images.shape[1] <= _LARGEST_SMALL_SIZE
            kind = "cifar" if small else "imagenet"
        draws = Draws(places, self._set_number)
        # Outside of the input pipeline's graph, on the host.
        with tf.init_scope(), tf.device("CPU:0"):
            return self._function(
                images, draws, *self._strengths[kind], **self._options
            )


def of_floats(function):
    """Returns a function of pixels, from one of numbers in [0, 1].

    Args:
        function: Of float32 images and other arguments. It returns such images.
    """

    def of_pixels(pixels, *args, **options):
        images = pixels.astype(np.float32)
        # Every level of a pixel survives this and the way back.
        images /= 255
        return to_pixels(function(images, *args, **options))

    return of_pixels


def of_planes(function):
    """Returns a function of pixels, from one of planes in [0, 1].

    Args:
        function: As in `of_floats`, of images `(batch, 3, size, size)`.
    """
    of_pixels = of_floats(function)

    def of_channels_last(pixels, *args, **options):
        # Channel by channel, which takes a fourth of the time of all at once.
        planes = np.stack([pixels[..., channel] for channel in range(3)], 1)
        planes = of_pixels(planes, *args, **options)
        corrupted = np.empty_like(pixels)
        for channel in range(3):
            corrupted[..., channel] = planes[:, channel]
        return corrupted

    return of_channels_last


def _check(dtype, shape):
    if (
        dtype != np.uint8
        or len(shape) != 4
        or (shape[1] != shape[2] or shape[3] != 3)
    ):
        raise ValueError(
            "`images` must be uint8 of shape (batch, size, size, 3). "
            f"Received: dtype={np.dtype(dtype).name}, shape={shape}"
        )
