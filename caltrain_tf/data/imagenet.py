"""Reads JPEG images, such as those of ImageNet, from record files.

Only the part of an image inside the crop is decoded. Crops and bicubic resizing
are those of Uncertainty Baselines; pixels are then rounded to uint8, like those
of stored images.
"""

import os
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from caltrain_tf.data import pipeline

# Side of an evaluation crop as a fraction of the shorter side: 224 of 256
# pixels.
_CENTRAL_FRACTION = 7 / 8
# Decoding takes most of the time, and TensorFlow uses at most 16 cores by
# default.
_NUM_CORES = os.cpu_count()
# Number of examples that are shuffled together: about 900 MB of ImageNet. The
# same amount is read ahead.
_BLOCK_SIZE = 8192


class File(NamedTuple):
    """A record file; `take` of its examples after the first `skip` are used."""

    path: str
    skip: int
    take: int


class JpegRecords:
    """Batches of uint8 images that are decoded and cropped from JPEG files.

    In every epoch the files are permuted, consecutive files form blocks, and
    each block is shuffled as a whole. Unlike those of a shuffle buffer, the
    contents of a block do not depend on what was read before, so an epoch can
    start at any step after reading at most one block.

    Args:
        files: A list of `File`.
        parse: Function from a record to (encoded image, label).
        size: Height and width of the images.
        block_size: Approximate number of examples that are shuffled together.
    """

    def __init__(self, files, parse, *, size, block_size=_BLOCK_SIZE):
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
        crop_key = pipeline.key(seed, epoch, pipeline.CROP)

        def example(place, record):
            encoded, label = self._parse(record)
            key = pipeline.fold(crop_key, place)
            image = random_crop(encoded, self._image_size, key)
            return image, tf.cast(label, tf.int32)

        dataset = records.enumerate(start).take(stop - start)
        dataset = pipeline.keep_rows(dataset, batch_size, rows)
        dataset = dataset.map(example, num_parallel_calls=_NUM_CORES)
        return dataset.batch(len(rows), drop_remainder=True)

    def eval_batches(self, batch_size, *, rows):
        """Returns a dataset of (images, labels, places)."""

        def example(place, record):
            encoded, label = self._parse(record)
            image = central_crop(encoded, self._image_size)
            return image, tf.cast(label, tf.int32), place

        records = _read(*map(list, zip(*self._files, strict=True)))
        padding = records.take(1).repeat(-self._size % batch_size)
        dataset = records.concatenate(padding).enumerate()
        dataset = pipeline.keep_rows(dataset, batch_size, rows)
        dataset = dataset.map(example, num_parallel_calls=_NUM_CORES)
        return dataset.batch(len(rows), drop_remainder=True)

    def _shuffled(self, seed, epoch, start):
        """Returns the records of an epoch, beginning at place `start`."""
        files_key = pipeline.key(seed, epoch, pipeline.FILES)
        order = pipeline.permutation(len(self._files), files_key).numpy()
        files = [self._files[index] for index in order]
        # Files with `take=0` fill up the last block.
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
        blocks_key = pipeline.key(seed, epoch, pipeline.BLOCKS)

        def block(number, files):
            size = tf.reduce_sum(files[2])
            key = pipeline.fold(blocks_key, number)
            # `Dataset.shuffle` would also depend on TensorFlow's global seed.
            return (
                _read(*files)
                .batch(size)
                .map(lambda r: tf.gather(r, pipeline.permutation(size, key)))
                .unbatch()
            )

        blocks = tf.data.Dataset.from_tensor_slices((paths, skips, takes))
        records = blocks.enumerate().skip(first).flat_map(block)
        return records.skip(start - begins_at).prefetch(_BLOCK_SIZE)


def random_crop(encoded, size, seed):
    """Decodes a random crop of an image and mirrors it with probability 1/2.

    The crop has 8 to 100% of the image's area and an aspect ratio of 3/4 to
    4/3, and is resized to a square. If ten attempts find no such crop, as in
    very long images, the result is `central_crop`.

    Args:
        encoded: A scalar string, the JPEG file.
        size: Height and width of the result.
        seed: A seed for stateless functions, `(2,)`.

    Returns:
        uint8 `(size, size, 3)`.
    """
    shape = tf.image.extract_jpeg_shape(encoded)
    begin, extent, _ = tf.image.stateless_sample_distorted_bounding_box(
        shape,
        tf.constant([[[0.0, 0.0, 1.0, 1.0]]]),
        seed=pipeline.fold(seed, 0),
        min_object_covered=0.0,
        aspect_ratio_range=(3 / 4, 4 / 3),
        area_range=(0.08, 1.0),
        max_attempts=10,
    )
    # The sampler returns the whole image if it finds no crop.
    window = tf.cond(
        tf.reduce_all(extent[:2] == shape[:2]),
        lambda: central_window(shape),
        lambda: tf.concat([begin[:2], extent[:2]], axis=0),
    )
    image = _decode(encoded, window, size)
    mirrored = pipeline.integers([], 0, 1, pipeline.fold(seed, 1)) == 1
    return tf.cond(mirrored, lambda: image[:, ::-1], lambda: image)


def central_crop(encoded, size):
    """Decodes the central square whose side is 7/8 of the shorter side.

    Args:
        encoded: A scalar string, the JPEG file.
        size: Height and width of the result.

    Returns:
        uint8 `(size, size, 3)`.
    """
    shape = tf.image.extract_jpeg_shape(encoded)
    return _decode(encoded, central_window(shape), size)


def central_window(shape):
    """Returns the top, left, height and width of `central_crop`."""
    shorter = tf.cast(tf.minimum(shape[0], shape[1]), tf.float32)
    side = tf.cast(shorter * _CENTRAL_FRACTION, tf.int32)
    side = tf.maximum(side, 1)
    return tf.stack(
        [(shape[0] - side + 1) // 2, (shape[1] - side + 1) // 2, side, side]
    )


def _decode(encoded, window, size):
    image = tf.image.decode_and_crop_jpeg(encoded, window, channels=3)
    image = tf.image.resize(image, (size, size), method="bicubic")
    # Bicubic interpolation overshoots at edges.
    image = tf.clip_by_value(tf.round(image), 0, 255)
    return tf.ensure_shape(tf.cast(image, tf.uint8), (size, size, 3))


def _read(paths, skips, takes):
    counts = tf.cast(skips, tf.int64), tf.cast(takes, tf.int64)
    files = tf.data.Dataset.from_tensor_slices((paths, *counts))
    # This is the order in which TensorFlow Datasets reads files.
    return files.interleave(
        lambda path, skip, take: (
            tf.data.TFRecordDataset(path).skip(skip).take(take)
        ),
        cycle_length=16,
        block_length=16,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
