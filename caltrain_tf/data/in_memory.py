"""A small data set, decoded once and kept in memory."""

import numpy as np
import tensorflow as tf

from caltrain_tf.data import stateless
from caltrain_tf.data.augment import shift_and_flip


class InMemoryImages:
    """Batches of uint8 images that are picked by index.

    A batch is a pure function of its number, so that any step of any epoch
    is reached without going through those before it.
    """

    def __init__(self, images, labels, *, max_shift, flip):
        """Takes the examples.

        Args:
            images: uint8 `(examples, height, width, channels)`.
            labels: Class ids, `(examples,)`.
            max_shift: The largest shift of a training image, in pixels.
            flip: Whether half of the training images are mirrored.
        """
        self._max_shift = max_shift
        self._flip = flip
        self._size = len(labels)
        # Whatever devices there are, the input pipeline runs on the host.
        with tf.device("CPU:0"):
            self._images = tf.constant(images, tf.uint8)
            self._labels = tf.cast(labels, tf.int32)

    def train_batches(self, batch_size, *, epoch, seed, first_step, rows):
        """Returns a dataset of (images, labels) in an epoch's own order.

        Args:
            batch_size: Of the global batch.
            epoch: The epoch's number.
            seed: The run's seed.
            first_step: Where in the epoch to start.
            rows: The range of rows of each global batch to return.
        """
        with tf.device("CPU:0"):
            keys = {
                purpose: stateless.key(seed, epoch, purpose)
                for purpose in (
                    stateless.ORDER,
                    stateless.SHIFT,
                    stateless.FLIP,
                )
            }
            order = stateless.permutation(self._size, keys[stateless.ORDER])
            # Drawn for the epoch at once: they do not depend on batch sizes.
            most = self._max_shift
            shifts = stateless.integers(
                [self._size, 2], -most, most, keys[stateless.SHIFT]
            )
            flips = stateless.integers(
                [self._size], 0, int(self._flip), keys[stateless.FLIP]
            )
            offsets = tf.range(rows.start, rows.stop, dtype=tf.int64)

        def batch(step):
            places = step * batch_size + offsets
            chosen = tf.gather(order, places)
            images = shift_and_flip(
                tf.gather(self._images, chosen),
                tf.gather(shifts, places),
                tf.gather(flips, places),
                most,
            )
            return images, tf.gather(self._labels, chosen)

        steps = tf.data.Dataset.range(first_step, self._size // batch_size)
        return steps.map(batch, num_parallel_calls=tf.data.AUTOTUNE)

    def eval_batches(self, batch_size, *, rows):
        """Returns a dataset of (images, labels, places) in stored order.

        The last batch is filled up with the last example; there, places are
        not below the number of examples.
        """
        num_steps = -(-self._size // batch_size)
        offsets = tf.range(rows.start, rows.stop, dtype=tf.int64)

        def batch(step):
            places = step * batch_size + offsets
            start, stop = places[0], places[-1] + 1
            chosen = tf.minimum(places, self._size - 1)
            # A part of a tensor is no copy.
            images = tf.cond(
                stop <= self._size,
                lambda: self._images[start:stop],
                lambda: tf.gather(self._images, chosen),
            )
            images = tf.ensure_shape(images, [len(rows), *images.shape[1:]])
            return images, tf.gather(self._labels, chosen), places

        steps = tf.data.Dataset.range(num_steps)
        return steps.map(batch, num_parallel_calls=tf.data.AUTOTUNE)

    def array_batches(self, batch_size):
        """Yields the same as arrays, which are not to be changed."""
        images, labels = map(np.asarray, (self._images, self._labels))
        for start in range(0, self._size, batch_size):
            places = np.arange(start, start + batch_size)
            rows = slice(start, start + batch_size)
            if rows.stop > self._size:
                rows = np.minimum(places, self._size - 1)
            yield images[rows], labels[rows], places
