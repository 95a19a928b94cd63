"""A large data set of JPEG images, read from record files."""

import os
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from caltrain_tf.data import jpeg
from caltrain_tf.data import stateless

# To decode is most of the work. By itself TensorFlow takes 16 at most.
_NUM_CORES = os.cpu_count()
# Examples that are shuffled with each other: some 900 MB of ImageNet, and as
# much again is read ahead.
_BLOCK_SIZE = 8192


class File(NamedTuple):
    """A record file, of which `take` examples after the first `skip` count."""

    path: str
    skip: int
    take: int


class JpegRecords:
    """Batches of uint8 images that are decoded and cropped from JPEG files.

    An epoch's order: the files are permuted, consecutive ones form blocks, and
    each block is shuffled as a whole. Unlike in a running shuffle buffer, what
    is in a block does not depend on what was read before, so that an epoch
    starts at any step after reading one block at most.
    """

    def __init__(self, files, parse, *, size, block_size=_BLOCK_SIZE):
        """Takes the files.

        Args:
            files: A list of `File`.
            parse: From a record to (encoded image, label).
            size: Height and width of the images.
            block_size: About how many examples are shuffled together.
        """
        self._files = files
        self._parse = parse
        self._image_size = size
        self._size = sum(file.take for file in files)
        mean_take = self._size / len(files)
        self._files_per_block = max(1, round(block_size / mean_take))

    def train_batches(self, batch_size, *, epoch, seed, first_step, rows):
        """Returns a dataset of (images, labels); see `InMemoryImages`."""
        start = first_step * batch_size
        stop = self._size // batch_size * batch_size
        records = self._shuffled(seed, epoch, start)
        crop_key = stateless.key(seed, epoch, stateless.CROP)

        def example(place, record):
            encoded, label = self._parse(record)
            key = stateless.fold(crop_key, place)
            image = jpeg.random_crop(encoded, self._image_size, key)
            return image, tf.cast(label, tf.int32)

        dataset = records.enumerate(start).take(stop - start)
        dataset = _keep(dataset, batch_size, rows)
        dataset = dataset.map(example, num_parallel_calls=_NUM_CORES)
        return dataset.batch(len(rows), drop_remainder=True)

    def eval_batches(self, batch_size, *, rows):
        """Returns a dataset of (images, labels, places)."""

        def example(place, record):
            encoded, label = self._parse(record)
            image = jpeg.central_crop(encoded, self._image_size)
            return image, tf.cast(label, tf.int32), place

        records = _read(*map(list, zip(*self._files, strict=True)))
        padding = records.take(1).repeat(-self._size % batch_size)
        dataset = records.concatenate(padding).enumerate()
        dataset = _keep(dataset, batch_size, rows)
        dataset = dataset.map(example, num_parallel_calls=_NUM_CORES)
        return dataset.batch(len(rows), drop_remainder=True)

    def _shuffled(self, seed, epoch, start):
        """Returns the records of an epoch from place `start` on."""
        files_key = stateless.key(seed, epoch, stateless.FILES)
        order = stateless.permutation(len(self._files), files_key).numpy()
        files = [self._files[index] for index in order]
        # Of the last block, files of which nothing is taken.
        files += [File(files[0].path, 0, 0)] * (
            -len(files) % self._files_per_block
        )
        paths, skips, takes = (
            np.reshape(column, (-1, self._files_per_block))
            for column in zip(*files, strict=True)
        )
        ends = np.cumsum(takes.sum(axis=1))
        first = int(np.searchsorted(ends, start, side="right"))
        begins_at = int(ends[first - 1]) if first else 0
        blocks_key = stateless.key(seed, epoch, stateless.BLOCKS)

        def block(number, files):
            size = tf.reduce_sum(files[2])
            key = stateless.fold(blocks_key, number)
            # `Dataset.shuffle` would also depend on TensorFlow's global seed.
            return (
                _read(*files)
                .batch(size)
                .map(lambda r: tf.gather(r, stateless.permutation(size, key)))
                .unbatch()
            )

        blocks = tf.data.Dataset.from_tensor_slices((paths, skips, takes))
        records = blocks.enumerate().skip(first).flat_map(block)
        return records.skip(start - begins_at).prefetch(_BLOCK_SIZE)


def _read(paths, skips, takes):
    counts = tf.cast(skips, tf.int64), tf.cast(takes, tf.int64)
    files = tf.data.Dataset.from_tensor_slices((paths, *counts))
    # The order in which TensorFlow Datasets itself reads.
    return files.interleave(
        lambda path, skip, take: (
            tf.data.TFRecordDataset(path).skip(skip).take(take)
        ),
        cycle_length=16,
        block_length=16,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )


def _keep(dataset, batch_size, rows):
    """Keeps the places that are in the given rows of their batch."""
    if len(rows) == batch_size:
        return dataset

    def is_kept(place, _):
        row = place % batch_size
        return (row >= rows.start) & (row < rows.stop)

    return dataset.filter(is_kept)
