"""Images that are read from files in every epoch, such as those of ImageNet.

Only the part of a JPEG image inside the crop is decoded. Crops and bicubic
resizing are those of Uncertainty Baselines; pixels are then rounded to uint8,
like those of stored images.
"""

import os
from typing import NamedTuple

import numpy as np
import tensorflow as tf

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
    """A part of a record file: `take` examples after the first `skip`."""

    path: str
    # The place of the first of them in the split.
    place: int
    skip: int
    take: int


def record_files(split):
    """Returns the files of a split of TensorFlow Datasets."""
    files, place = [], 0
    for file in split.file_instructions:
        files.append(File(str(file.filename), place, file.skip, file.take))
        place += file.take
    return files


class StoredImages:
    """Batches of images for evaluation, read in the order of the files.

    Args:
        size: The number of examples.
        read: Function from `start` and `stop` to a dataset of (place, record),
            with the places from `start` to `stop` in any order.
        decode: Function from a record to (uint8 image, label).
    """

    def __init__(self, size, read, decode):
        self.size = size
        self._read = read
        self._decode = decode

    def eval_batches(self, batch_size, shard):
        """Returns a dataset of (images, labels, places).

        Each host reads one of `count` consecutive parts of the examples. Black
        images, whose place is the number of examples, fill up the last ones.
        """
        index, count = shard
        rows = batch_size // count
        share = rows * -(-self.size // batch_size)
        start, stop = (min(i * share, self.size) for i in (index, index + 1))

        def example(place, record):
            image, label = self._decode(record)
            return image, tf.cast(label, tf.int32), place

        dataset = self._read(start, stop)
        dataset = dataset.map(example, num_parallel_calls=_NUM_CORES)
        image = dataset.element_spec[0]
        black = tf.zeros(image.shape, image.dtype), 0, np.int64(self.size)
        padding = tf.data.Dataset.from_tensors(black).repeat(
            share - (stop - start)
        )
        return dataset.concatenate(padding).batch(rows, drop_remainder=True)


class JpegRecords(StoredImages):
    """Batches of images that are cropped from JPEG images in record files.

    In every epoch the files are permuted and divided into equal parts for the
    hosts, which may cut a file in two. Of its part, each host shuffles blocks
    of consecutive files as a whole. Unlike the contents of a shuffle buffer, a
    block does not depend on what was read before, so an epoch can start at any
    step after reading at most one block.

    Args:
        files: A list of `File`.
        parse: Function from a record to (encoded image, label).
        image_size: Height and width of the images.
        block_size: Approximate number of examples that are shuffled together.
    """

    def __init__(self, files, parse, image_size, block_size=_BLOCK_SIZE):
        def decode(record):
            encoded, label = parse(record)
            return central_crop(encoded, image_size), label

        size = sum(file.take for file in files)
        super().__init__(size, reader(files), decode)
        self._files = files
        self._parse = parse
        self._image_size = image_size
        self._files_per_block = max(1, round(block_size * len(files) / size))

    def train_batches(self, batch_size, rng, first_step, shard):
        """Returns a dataset of (images, labels) in an epoch's own order."""
        index, count = shard
        rows = batch_size // count
        share = rows * (self.size // batch_size)
        block_key, crop_key = rng.integers(2**60, size=2)
        files = [self._files[i] for i in rng.permutation(len(self._files))]
        files = _cut(files, index * share, (index + 1) * share)
        records = self._shuffled(files, block_key, start=first_step * rows)

        def example(place, record):
            encoded, label = self._parse(record)
            seed = tf.stack([crop_key, place])
            image = random_crop(encoded, self._image_size, seed)
            return image, tf.cast(label, tf.int32)

        dataset = records.map(example, num_parallel_calls=_NUM_CORES)
        return dataset.batch(rows, drop_remainder=True)

    def _shuffled(self, files, key, start):
        """Returns (place, record) of all files, from the `start`-th on."""
        columns = _columns(files)
        begins = np.arange(0, len(files), self._files_per_block)
        ends = np.cumsum(np.add.reduceat(columns[-1], begins))
        first = int(np.searchsorted(ends, start, side="right"))
        skipped = int(ends[first - 1]) if first else 0

        def block(begin):
            chosen = slice(begin, begin + self._files_per_block)
            return (
                _read([tf.constant(column)[chosen] for column in columns])
                .batch(self.size)
                .map(shuffle)
                .unbatch()
            )

        def shuffle(places, records):
            # `Dataset.shuffle` would also depend on TensorFlow's global seed.
            order = tf.random.experimental.stateless_shuffle(
                tf.range(tf.size(places)), [key, places[0]], alg="philox"
            )
            return tf.gather(places, order), tf.gather(records, order)

        blocks = tf.data.Dataset.from_tensor_slices(begins).skip(first)
        records = blocks.flat_map(block).skip(start - skipped)
        return records.prefetch(_BLOCK_SIZE)


def reader(files):
    """Returns the `read` of `StoredImages` for record files."""
    return lambda start, stop: _read(_columns(_cut(files, start, stop)))


def _cut(files, start, stop):
    """Returns the parts of files that hold the examples from start to stop."""
    kept, position = [], 0
    for path, place, skip, take in files:
        first, last = max(start - position, 0), min(stop - position, take)
        if first < last:
            kept.append(File(path, place + first, skip + first, last - first))
        position += take
    return kept


def _columns(files):
    paths = np.array([file.path for file in files], str)
    numbers = np.array([file[1:] for file in files], np.int64)
    return paths, *numbers.reshape(-1, 3).T


def _read(columns):
    """Returns (place, record) in the order of TensorFlow Datasets."""

    def records(path, place, skip, take):
        return (
            tf.data.TFRecordDataset(path).skip(skip).take(take).enumerate(place)
        )

    return tf.data.Dataset.from_tensor_slices(tuple(columns)).interleave(
        records,
        cycle_length=16,
        block_length=16,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )


def random_crop(encoded, size, seed):
    """Decodes a random crop of an image and mirrors it with probability 1/2.

    The crop has 8 to 100% of the image's area and an aspect ratio of 3/4 to
    4/3, and is resized to uint8 `(size, size, 3)`. If ten attempts find no such
    crop, as in very long images, the result is `central_crop`.
    """
    shape = tf.image.extract_jpeg_shape(encoded)
    begin, extent, _ = tf.image.stateless_sample_distorted_bounding_box(
        shape,
        tf.constant([[[0.0, 0.0, 1.0, 1.0]]]),
        seed=seed,
        min_object_covered=0.1,
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
    seed = seed + tf.constant([1, 0], seed.dtype)
    mirrored = tf.random.stateless_uniform([], seed, alg="philox") < 0.5
    return tf.cond(mirrored, lambda: image[:, ::-1], lambda: image)


def central_crop(encoded, size):
    """Decodes the central square whose side is 7/8 of the shorter side."""
    shape = tf.image.extract_jpeg_shape(encoded)
    return _decode(encoded, central_window(shape), size)


def central_window(shape):
    """Returns the top, left, height and width of `central_crop`."""
    shorter = tf.cast(tf.minimum(shape[0], shape[1]), tf.float32)
    side = tf.maximum(tf.cast(shorter * _CENTRAL_FRACTION, tf.int32), 1)
    return tf.stack(
        [(shape[0] - side + 1) // 2, (shape[1] - side + 1) // 2, side, side]
    )


def resize(image, shape):
    """Resizes an image of any size to uint8 of `shape`, by bicubic splines."""
    image = tf.image.resize(image, shape[:2], method="bicubic")
    # Bicubic interpolation overshoots at edges.
    image = tf.clip_by_value(tf.round(image), 0, 255)
    return tf.ensure_shape(tf.cast(image, tf.uint8), shape)


def _decode(encoded, window, size):
    image = tf.image.decode_and_crop_jpeg(encoded, window, channels=3)
    return resize(image, (size, size, 3))
