"""Images that are changed on their way, in one way or in several."""

import numpy as np
import tensorflow as tf

# Kept ready while a network runs; more would only take memory.
BATCHES_AHEAD = 2


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

    return dataset.map(change, num_parallel_calls=tf.data.AUTOTUNE)


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
        # Whatever devices there are, the input pipeline runs on the host.
        with tf.device("CPU:0"):
            return np.asarray(transforms[index // num_batches](images, places))

    @tf.autograph.experimental.do_not_convert
    def change(index, batch):
        images, labels, places = batch
        result = tf.numpy_function(
            call, [index, images, places], tf.uint8, stateful=False
        )
        return tf.ensure_shape(result, images.shape), labels, places

    dataset = dataset.take(num_batches).repeat(len(transforms)).enumerate()
    return dataset.map(change, num_parallel_calls=tf.data.AUTOTUNE)
