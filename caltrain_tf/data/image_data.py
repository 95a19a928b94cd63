"""A data set as batches for training and evaluation."""

import numpy as np
import tensorflow as tf

from caltrain_tf.data.parts import Part

_DTYPES = ("float32", "bfloat16")


class ImageData:
    """Batches of a data set's train, calibration and test splits.

    Made by `caltrain_tf.data.get`. Batches are *global* ones; with several
    processes, each may ask for its rows of them (`shard`). `tf.data` must not
    shard on top of this, and its auto-sharding is switched off: it would pick
    examples by file or by position, and so change which examples meet in a
    batch.

    Attributes:
        name: The data set's name.
        num_classes: The number of classes.
        image_shape: (height, width, channels).
        num_examples: The number of examples of each split.
    """

    def __init__(self, name, spec, origin, parts, dtype="float32"):
        """Takes the data set's parts.

        Args:
            name: The data set's name.
            spec: Its `Spec`.
            origin: Loads a part.
            parts: The `Part` of each split.
            dtype: Of the images, `"float32"` or `"bfloat16"`.
        """
        if dtype not in _DTYPES:
            raise ValueError(
                f"`dtype` must be one of {_DTYPES}. Received: dtype={dtype!r}"
            )
        self.name = name
        self.num_classes = spec.num_classes
        self.image_shape = spec.image_shape
        self.num_examples = {split: part.size for split, part in parts.items()}
        self._spec = spec
        self._origin = origin
        self._parts = parts
        self._dtype = dtype
        self._loaded = {}

    def steps_per_epoch(self, batch_size):
        """Returns the number of whole batches in the training split."""
        steps = self.num_examples["train"] // batch_size
        if steps < 1:
            raise ValueError(
                f"`batch_size` must be at most the number of training "
                f"examples, {self.num_examples['train']}. "
                f"Received: batch_size={batch_size}"
            )
        return steps

    def train_batches(
        self, batch_size, *, epoch=0, seed=0, first_step=0, shard=(0, 1)
    ):
        """Returns the shuffled and augmented batches of one epoch.

        They are a pure function of (`seed`, `epoch`), whatever ran before.
        What does not fill a batch is left out of this epoch.

        Args:
            batch_size: Of the global batch.
            epoch: The number of the epoch, from 0.
            seed: The seed of the run.
            first_step: The step of the epoch to start at; those before it are
                not computed.
            shard: (index, count): return only the rows of each global batch
                that fall to process `index` of `count`.

        Returns:
            A `tf.data.Dataset` of (image, label): normalised images of the
            data set's dtype, and int32 class ids.
        """
        _check_not_negative(epoch=epoch, seed=seed, first_step=first_step)
        rows = _rows(batch_size, shard)
        steps = self.steps_per_epoch(batch_size)
        if first_step > steps:
            raise ValueError(
                f"`first_step` must be at most the {steps} steps of an epoch. "
                f"Received: first_step={first_step}"
            )
        dataset = self._source("train").train_batches(
            batch_size, epoch=epoch, seed=seed, first_step=first_step, rows=rows
        )

        def finish(images, labels):
            return self._normalize(images), labels

        dataset = _finished(dataset, finish)
        cardinality = tf.data.experimental.assert_cardinality(
            steps - first_step
        )
        return dataset.apply(cardinality)

    def eval_batches(self, split, batch_size, *, shard=(0, 1), transform=None):
        """Returns each example of a split once, in a fixed order.

        Args:
            split: "train" (then without augmentation), "calibration" or
                "test".
            batch_size: Of the global batch.
            shard: As in `train_batches`.
            transform: From uint8 images `(batch, height, width, channels)` and
                their places in the split `(batch,)` to such images: a
                corruption.

        Returns:
            A `tf.data.Dataset` of (image, label, weight). Every batch is full;
            the last one is filled up with examples of weight 0.
        """
        rows = _rows(batch_size, shard)
        size = self.num_examples[_check_split(split, self._parts)]
        dataset = self._source(split).eval_batches(batch_size, rows=rows)

        def finish(images, labels, places):
            if transform is not None:
                images = tf.ensure_shape(
                    transform(images, places), images.shape
                )
            weights = tf.cast(places < size, tf.float32)
            return self._normalize(images), labels, weights

        dataset = _finished(dataset, finish)
        cardinality = tf.data.experimental.assert_cardinality(
            -(-size // batch_size)
        )
        return dataset.apply(cardinality)

    def interleaved(self, held_out_fraction=0.1):
        """Splits the training set for interleaved training.

        Args:
            held_out_fraction: The held-out part's share of the training set,
                its tail.

        Returns:
            Two `ImageData` whose training sets are the majority part and the
            held-out part; their other splits are those of this one.
        """
        train = self._parts["train"]
        held_out = 0
        if isinstance(held_out_fraction, float):
            held_out = round(held_out_fraction * train.size)
        if not 0 < held_out < train.size:
            raise ValueError(
                "`held_out_fraction` must be above 0 and below 1, and leave "
                f"examples of the {train.size} in both parts. "
                f"Received: held_out_fraction={held_out_fraction!r}"
            )
        middle = train.stop - held_out
        return tuple(
            ImageData(
                self.name,
                self._spec,
                self._origin,
                {**self._parts, "train": part},
                self._dtype,
            )
            for part in (
                Part(train.stored, train.start, middle),
                Part(train.stored, middle, train.stop),
            )
        )

    def _source(self, split):
        part = self._parts[split]
        if part not in self._loaded:
            self._loaded[part] = self._origin.load(part)
        return self._loaded[part]

    def _normalize(self, images):
        # Whole rows of pixels: to broadcast three channels is thrice as slow.
        height, width, channels = self.image_shape
        mean = np.tile(np.float32(self._spec.mean), width)
        std = np.tile(np.float32(self._spec.std), width)
        pixels = tf.reshape(images, [-1, height, width * channels])
        pixels = tf.cast(pixels, tf.float32) * (1 / (255 * std)) - mean / std
        return tf.cast(tf.reshape(pixels, tf.shape(images)), self._dtype)


def _finished(dataset, finish):
    options = tf.data.Options()
    options.deterministic = True
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.OFF
    )
    dataset = dataset.map(finish, num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.prefetch(tf.data.AUTOTUNE).with_options(options)


def _rows(batch_size, shard):
    _check_not_negative(batch_size=batch_size)
    index, count = shard
    if not 0 <= index < count:
        raise ValueError(
            "`shard` must be (index, count) with 0 <= index < count. "
            f"Received: shard={shard}"
        )
    if batch_size < 1 or batch_size % count:
        raise ValueError(
            f"`batch_size` must be a multiple of the {count} shards. "
            f"Received: batch_size={batch_size}"
        )
    size = batch_size // count
    return range(index * size, (index + 1) * size)


def _check_split(split, splits):
    if split not in splits:
        raise ValueError(
            f"`split` must be one of {tuple(splits)}. Received: split={split!r}"
        )
    return split


def _check_not_negative(**values):
    for name, value in values.items():
        if not isinstance(value, int) or value < 0:
            raise ValueError(
                f"`{name}` must be an integer >= 0. Received: {name}={value!r}"
            )
