"""Images that are read from files in every epoch, such as those of ImageNet.

Crops and bicubic resizing are those of Uncertainty Baselines.
"""

import functools
import os

import numpy as np
import tensorflow as tf

# By default, TensorFlow decodes on at most 16 cores.
_NUM_CORES = os.cpu_count()
# Examples in the shuffle buffer: about 900 MB of ImageNet.
_BUFFER_SIZE = 8192
# Examples after which the buffer is filled again, and which an epoch
# that starts later may have to read first.
_BLOCK_SIZE = 8 * _BUFFER_SIZE


class StoredImages:
    """Batches of images for evaluation, read in the order of the files.

    `read(start, stop)` returns a dataset of (place, record), in any order, and
    `decode(record)` a uint8 image and its label.
    """

    def __init__(self, size, read, decode):
        self.size = size
        self._read = read
        self._decode = decode

    def eval_batches(self, batch_size, shard):
        """Returns a dataset of (images, labels, places)."""
        # Each host reads one of `count` consecutive parts of the examples.
        index, count = shard
        rows = batch_size // count
        share = rows * -(-self.size // batch_size)
        start, stop = (min(i * share, self.size) for i in (index, index + 1))

        def example(place, record):
            image, label = self._decode(record)
            return image, tf.cast(label, tf.int32), place

        dataset = self._read(start, stop).map(example, _NUM_CORES)
        # Black images behind the last example fill up the last batches.
        image = dataset.element_spec[0]
        black = tf.zeros(image.shape, image.dtype), 0, np.int64(self.size)
        missing = share - (stop - start)
        padding = tf.data.Dataset.from_tensors(black).repeat(missing)
        return dataset.concatenate(padding).batch(rows, drop_remainder=True)


class JpegRecords(StoredImages):
    """Batches of images that are cropped from JPEG images in record files.

    In every epoch the files are permuted and divided into equal parts for the
    hosts, which shuffle them block by block. `files` are as in `read_records`,
    and `parse(record)` returns an encoded image and its label.
    """

    def __init__(self, files, parse, image_size, block_size=_BLOCK_SIZE):
        def decode(record):
            encoded, label = parse(record)
            return central_crop(encoded, image_size), label

        size = sum(take for _, _, take in files)
        super().__init__(size, functools.partial(read_records, files), decode)
        self._columns = _columns(files)
        self._parse = parse
        self._image_size = image_size
        self._files_per_block = max(1, round(block_size * len(files) / size))

    def train_batches(self, batch_size, rng, first_step, shard):
        """Returns a dataset of (images, labels) in an epoch's own order."""
        index, count = shard
        rows = batch_size // count
        share = rows * (self.size // batch_size)
        shuffle_seed, crop_seed = rng.integers(1, 2**31 - 1, size=2)
        order = rng.permutation(len(self._columns[0]))
        columns = [column[order] for column in self._columns]
        columns = _cut(columns, index * share, (index + 1) * share)
        # The block of the first step, and the examples before it.
        length = self._files_per_block
        begins = np.arange(0, len(columns[0]), length)
        sizes = np.add.reduceat(columns[-1], begins)
        start = first_step * rows
        first = np.searchsorted(np.cumsum(sizes), start, side="right")

        def block(begin):
            # The seed of this function's graph; otherwise the order would also
            # depend on TensorFlow's global seed.
            tf.random.set_seed(shuffle_seed)
            files = slice(begin, begin + length)
            records = _read([tf.constant(column)[files] for column in columns])
            return records.shuffle(_BUFFER_SIZE, begin, False)

        def example(place, record):
            encoded, label = self._parse(record)
            seed = tf.stack([crop_seed, place])
            image = random_crop(encoded, self._image_size, seed)
            return image, tf.cast(label, tf.int32)

        blocks = tf.data.Dataset.from_tensor_slices(begins[first:])
        records = blocks.flat_map(block).skip(start - sizes[:first].sum())
        return records.map(example, _NUM_CORES).batch(rows, drop_remainder=True)


def record_files(split):
    """Returns the `files` of a split of TensorFlow Datasets."""
    files = split.file_instructions
    return [(str(file.filename), file.skip, file.take) for file in files]


def read_records(files, start, stop):
    """Returns (place, record) of examples, in TensorFlow Datasets' order.

    `files` are (path, skip, take): `take` examples after the first `skip`.
    """
    return _read(_cut(_columns(files), start, stop))


def _columns(files):
    """Returns the paths, the place of each first example, skips and takes."""
    paths, skips, takes = map(np.array, zip(*files, strict=True))
    return paths, np.cumsum(takes) - takes, skips, takes


def _cut(columns, start, stop):
    """Returns the parts of files that hold the examples from start to stop."""
    paths, places, skips, takes = columns
    begins = np.cumsum(takes) - takes
    first, last = (np.clip(at - begins, 0, takes) for at in (start, stop))
    cut = paths, places + first, skips + first, last - first
    return [column[first < last] for column in cut]


def _read(columns):
    def records(path, place, skip, take):
        records = tf.data.TFRecordDataset(path).skip(skip).take(take)
        return records.enumerate(place)

    return tf.data.Dataset.from_tensor_slices(tuple(columns)).interleave(
        records,
        cycle_length=16,
        block_length=16,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )


def random_crop(encoded, size, seed):
    """Decodes a random crop of an image and mirrors it with probability 1/2."""
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
    # The sampler returns the whole image if it finds no crop, as in long ones.
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
    side = tf.maximum(tf.cast(shorter * (7 / 8), tf.int32), 1)
    return tf.stack([*tf.unstack((shape[:2] - side + 1) // 2), side, side])


def resize(image, shape):
    """Resizes an image to uint8 of `shape`, by bicubic splines."""
    image = tf.image.resize(image, shape[:2], method="bicubic")
    # Bicubic interpolation overshoots at edges.
    image = tf.clip_by_value(tf.round(image), 0, 255)
    return tf.ensure_shape(tf.cast(image, tf.uint8), shape)


def _decode(encoded, window, size):
    image = tf.image.decode_and_crop_jpeg(encoded, window, channels=3)
    return resize(image, (size, size, 3))
