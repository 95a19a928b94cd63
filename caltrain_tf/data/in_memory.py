"""Small data sets, decoded once and kept in memory."""

import numpy as np
import tensorflow as tf

from caltrain_tf.data import pipeline


class InMemoryImages:
    """Batches of images in memory.

    A batch is computed from its number alone, so an epoch can start at any
    step, and every host computes its own rows of each global batch.

    Args:
        images: uint8 `(examples, height, width, channels)`.
        labels: Class ids, `(examples,)`.
        max_shift: The largest shift of a training image, in pixels.
        flip: Whether half of the training images are mirrored.
    """

    def __init__(self, images, labels, *, max_shift=0, flip=False):
        self._max_shift = max_shift
        self._flip = flip
        self.size = len(labels)
        # The input pipeline runs on the host even if there are accelerators.
        with tf.device("CPU:0"):
            self._arrays = (
                tf.constant(images, tf.uint8),
                tf.cast(labels, "int32"),
            )
        self._copies = {}

    def train_batches(self, batch_size, *, epoch, seed, first_step, shard):
        """Returns a dataset of (images, labels) in an epoch's own order."""
        most = self._max_shift
        random = pipeline.generator(seed, epoch)
        images, labels = self._arrays_of_host()
        # Drawn for the whole epoch, so that the values do not depend on the
        # batch size.
        with tf.device("CPU:0"):
            order = tf.constant(random.permutation(self.size))
            shifts = tf.constant(
                random.integers(-most, most, (self.size, 2), "int32", True)
            )
            flips = tf.constant(random.random(self.size) < 0.5 * self._flip)
        rows = _rows(batch_size, shard)

        def batch(step):
            places = step * batch_size + rows
            chosen = tf.gather(order, places)
            moved = shift_and_flip(
                tf.gather(images, chosen),
                tf.gather(shifts, places),
                tf.gather(flips, places),
                most,
            )
            return moved, tf.gather(labels, chosen)

        steps = tf.data.Dataset.range(first_step, self.size // batch_size)
        return steps.map(batch, num_parallel_calls=tf.data.AUTOTUNE)

    def eval_batches(self, batch_size, *, shard):
        """Returns a dataset of (images, labels, places) in stored order.

        The last batch is filled up with copies of the last example, whose
        places are at least the number of examples.
        """
        images, labels = self._arrays_of_host()
        rows = _rows(batch_size, shard)

        def batch(step):
            places = step * batch_size + rows
            chosen = tf.minimum(places, self.size - 1)
            return tf.gather(images, chosen), tf.gather(labels, chosen), places

        steps = tf.data.Dataset.range(-(-self.size // batch_size))
        return steps.map(batch, num_parallel_calls=tf.data.AUTOTUNE)

    def _arrays_of_host(self):
        """Returns images and labels on the host that builds its input.

        They are copied to a remote host once, not for every epoch.
        """
        with tf.device("CPU:0"):
            host = tf.zeros([]).device
            if host not in self._copies:
                self._copies[host] = [tf.identity(x) for x in self._arrays]
        return self._copies[host]


def _rows(batch_size, shard):
    """Returns the rows of each global batch that belong to a shard."""
    index, count = shard
    size = batch_size // count
    return np.arange(index * size, (index + 1) * size)


def shift_and_flip(images, shifts, flips, max_shift):
    """Shifts and mirrors each image of a batch by its own amounts.

    This is the same as padding with `max_shift` black pixels on every side,
    cropping at offset `max_shift` + shift, and then mirroring left and right.

    `shifts` are `(batch, 2)`, down and to the right; `flips` are booleans.

    Example:
        >>> image = tf.reshape(tf.range(1, 5), [1, 2, 2, 1])
        >>> shift_and_flip(image, [[1, 0]], [True], 1)[0, :, :, 0].numpy()
        array([[4, 3],
               [0, 0]], dtype=int32)
    """
    shifts, flips = tf.convert_to_tensor(shifts), tf.convert_to_tensor(flips)
    height, width = images.shape[1:3]
    margin = [max_shift, max_shift]
    padded = tf.pad(images, [[0, 0], margin, margin, [0, 0]])
    rows = max_shift + shifts[:, :1] + tf.range(height)
    columns = tf.where(
        flips[:, tf.newaxis], tf.range(width)[::-1], tf.range(width)
    )
    columns += max_shift + shifts[:, 1:]
    # Gathering rows and then pixels is far faster than one crop per image.
    moved = tf.gather(padded, rows, axis=1, batch_dims=1)
    return tf.gather(moved, columns, axis=2, batch_dims=1)
