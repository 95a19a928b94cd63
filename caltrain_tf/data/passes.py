"""Images that are changed on their way, in one way or in several."""

import os

import numpy as np
import tensorflow as tf

from caltrain_tf.data.corruptions.corruption import Corruption
from caltrain_tf.data.devices import is_processor_alone

# Kept ready while a network runs; more would only take memory.
BATCHES_AHEAD = 2
# A network of any use takes several times as long as its images.
_CORES_A_CALL = 8


def transformed(dataset, transform):
    """Changes the images of a dataset of (images, labels, places).

    Args:
        dataset: With uint8 images `(batch, height, width, channels)`.
        transform: From such images and their places `(batch,)` to images of the
            same shape.
    """

    def change(images, labels, places):
        result = transform(images, places)
        return tf.ensure_shape(result, images.shape), labels, places

    return dataset.map(change, num_parallel_calls=_calls_at_once())


def in_passes(dataset, transforms, num_batches):
    """Repeats the first batches, transformed in another way each time.

    A dataset of its own for each transform costs tens of milliseconds, while
    which a network would wait: here the next one's batches are made while
    those of the last are in use, and functions are traced once.

    Args:
        dataset: As in `transformed`, in a fixed order.
        transforms: A sequence of functions as there. They are called eagerly.
        num_batches: Of each pass.

    Returns:
        A dataset of `num_batches` elements for each transform, one transform
        after the other.

    Example:
        >>> images = tf.zeros((1, 1, 1, 3), tf.uint8)
        >>> dataset = tf.data.Dataset.from_tensors((images, [5], [0]))
        >>> added = [lambda images, _, n=n: images + n for n in (3, 4)]
        >>> passes = in_passes(dataset, added, num_batches=1)
        >>> [int(images[0, 0, 0, 0]) for images, _, _ in passes]
        [3, 4]
    """

    def call(index, images, places):
        transform = transforms[index // num_batches]
        if isinstance(transform, Corruption):
            return transform.of_arrays(images, places)
        # Whatever devices there are, the input pipeline runs on the host.
        with tf.device("CPU:0"):
            return np.asarray(transform(images, places))

    @tf.autograph.experimental.do_not_convert
    def change(index, batch):
        images, labels, places = batch
        result = tf.numpy_function(
            call, [index, images, places], tf.uint8, stateful=False
        )
        return tf.ensure_shape(result, images.shape), labels, places

    dataset = dataset.take(num_batches).repeat(len(transforms)).enumerate()
    return dataset.map(change, num_parallel_calls=_calls_at_once())


def _calls_at_once():
    """Returns how many batches are changed in parallel.

    Where the network needs the cores itself, no more than it can use: threads
    of Python that wait for each other take a fourth more of processor time.
    """
    if is_processor_alone():
        return max(1, os.cpu_count() // _CORES_A_CALL)
    return tf.data.AUTOTUNE
