"""The batches of a data set, on one host or on several.

Batches are a function of the seed, the epoch and the step, so an interrupted
run sees the same ones as a run that was not interrupted.
"""

import copy
import functools

import numpy as np
import tensorflow as tf

from caltrain_tf import checks

# Batches prefetched while the network runs; more would only use memory.
_EVAL_BATCHES_AHEAD = 2


class ImageData:
    """Batches of a data set's train, calibration and test splits.

    `caltrain_tf.data.get` returns such an object. Images are float32 and
    normalised, or pixels if `dtype` is `"uint8"`, which the network normalises
    with `keras.layers.Rescaling(**data.rescaling, dtype="float32")`. Embeddings
    are float32 and not normalised. `load` returns the examples of a `Part`,
    `InMemoryImages` or `JpegRecords`, and `parts` has that of each split.
    """

    def __init__(self, name, spec, load, parts, dtype="float32"):
        self.name = name
        self.num_classes = spec.num_classes
        self.image_shape = spec.image_shape
        self.mean, self.std = spec.mean, spec.std
        self.dtype = checks.choice("dtype", dtype, ("float32", "uint8"))
        self._load = load
        self._parts = parts

    @property
    def num_examples(self):
        """The number of examples of each split."""
        return {split: part.size for split, part in self._parts.items()}

    @property
    def is_embedded(self):
        """Whether examples are embeddings."""
        return len(self.image_shape) == 1

    @property
    def rescaling(self):
        """Arguments of `keras.layers.Rescaling` that normalise pixels."""
        return rescaling(self.mean, self.std)

    def steps_per_epoch(self, batch_size):
        """Returns the number of whole batches in the training split."""
        size = self.num_examples["train"]
        if not 1 <= batch_size <= size:
            raise ValueError(
                "`batch_size` must be at least 1 and at most the number of "
                f"training examples, {size}. Received: batch_size={batch_size}"
            )
        return size // batch_size

    def train_batches(
        self, batch_size, *, epoch=0, seed=0, first_step=0, shard=(0, 1)
    ):
        """Returns the shuffled and augmented batches of one epoch.

        Examples that do not fill the last batch are left out; they are others
        in every epoch. Images of the steps before `first_step` are not decoded.
        A `shard`, (index, count), is a part of each batch of `batch_size`.
        """
        steps = self.steps_per_epoch(batch_size)
        _check_shard(batch_size, shard)
        rng = np.random.Generator(np.random.Philox(key=[seed, epoch]))
        examples = self._load(self._parts["train"])
        dataset = examples.train_batches(batch_size, rng, first_step, shard)

        def finish(images, labels):
            return self._finish(images), labels

        return _finished(dataset, finish, steps - first_step, tf.data.AUTOTUNE)

    def eval_batches(self, split, batch_size, *, shard=(0, 1), transform=None):
        """Returns (image, label, weight) of a split once, in a fixed order.

        Examples of weight 0 fill up the last batches. `transform` is a function
        from uint8 images and their places in the split to uint8 images of the
        same shape, such as a corruption.
        """
        part = self._parts[checks.choice("split", split, self._parts)]
        _check_shard(batch_size, shard)
        dataset = self._load(part).eval_batches(batch_size, shard)

        def finish(images, labels, places):
            if transform is not None:
                images = transform(images, places)
            weights = tf.cast(places < part.size, tf.float32)
            return self._finish(images), labels, weights

        num_batches = -(-part.size // batch_size)
        return _finished(dataset, finish, num_batches, _EVAL_BATCHES_AHEAD)

    def train_input(self, batch_size, *, seed=0):
        """Returns the `dataset` of `Trainer.fit`, built on each host.

        It is a function `(epoch, context, first_step=0)` that returns the
        host's shard of `train_batches`, in batches of one replica.
        """

        def build(epoch, context, first_step=0):
            options = {"epoch": epoch, "seed": seed, "first_step": first_step}
            batches = functools.partial(self.train_batches, **options)
            return host_input(batches, batch_size)(context)

        return build

    def eval_input(self, split, batch_size):
        """Returns a function from an `InputContext` to the host's batches."""
        batches = functools.partial(self.eval_batches, split)
        return host_input(batches, batch_size)

    def interleaved(self, held_out_fraction=0.1):
        """Returns two `ImageData`, which share out the training set.

        The held-out part of the second one is the end of it.
        """
        train = self._parts["train"]
        checks.number("held_out_fraction", held_out_fraction, low=0, high=1)
        held_out = round(held_out_fraction * train.size)
        if not 0 < held_out < train.size:
            raise ValueError(
                f"`held_out_fraction` must divide the {train.size} examples. "
                f"Received: held_out_fraction={held_out_fraction!r}"
            )
        middle = train.stop - held_out
        halves = train._replace(stop=middle), train._replace(start=middle)
        copies = copy.copy(self), copy.copy(self)
        for data, half in zip(copies, halves, strict=True):
            data._parts = {**self._parts, "train": half}
        return copies

    def with_test(self, examples):
        """Returns a copy whose only split is "test", with other examples."""
        data = copy.copy(self)
        data._parts, data._load = {"test": examples}, lambda part: part
        return data

    def _finish(self, images):
        if self.dtype == "uint8" or self.is_embedded:
            return images
        images = tf.cast(images, tf.float32)
        return images * self.rescaling["scale"] + self.rescaling["offset"]


class InMemoryImages:
    """Batches of uint8 images, or embeddings, and class ids in memory.

    A batch is computed from its number alone, on every host its own rows.
    """

    def __init__(self, images, labels, max_shift=0, flip=False):
        self._max_shift = max_shift
        self._flip = flip
        self.size = len(labels)
        # The input pipeline runs on the host even if there are accelerators.
        with tf.device("CPU:0"):
            self._arrays = (tf.constant(images), tf.cast(labels, "int32"))
        self._copies = {}

    def train_batches(self, batch_size, rng, first_step, shard):
        """Returns a dataset of (images, labels) in an epoch's own order."""
        size, most = self.size, self._max_shift
        images, labels = self._arrays_of_host()
        # Drawn for the whole epoch, so that the values do not depend on the
        # batch size.
        with tf.device("CPU:0"):
            order = tf.constant(rng.permutation(size))
            shifts = rng.integers(-most, most, (size, 2), "int32", True)
            flips = tf.constant(rng.random(size) < 0.5 * self._flip)
        rows = _rows(batch_size, shard)

        def batch(step):
            places = step * batch_size + rows
            chosen = tf.gather(order, places)
            moved = tf.gather(images, chosen)
            if most or self._flip:
                moves = tf.gather(shifts, places), tf.gather(flips, places)
                moved = shift_and_flip(moved, *moves, most)
            return moved, tf.gather(labels, chosen)

        steps = tf.data.Dataset.range(first_step, size // batch_size)
        return steps.map(batch, num_parallel_calls=tf.data.AUTOTUNE)

    def eval_batches(self, batch_size, shard):
        """Returns a dataset of (images, labels, places) in stored order."""
        images, labels = self._arrays_of_host()
        rows = _rows(batch_size, shard)

        def batch(step):
            places = step * batch_size + rows
            # Copies of the last example fill up the last batch.
            chosen = tf.minimum(places, self.size - 1)
            return tf.gather(images, chosen), tf.gather(labels, chosen), places

        steps = tf.data.Dataset.range(-(-self.size // batch_size))
        return steps.map(batch, num_parallel_calls=tf.data.AUTOTUNE)

    def _arrays_of_host(self):
        """Returns images and labels on the host that builds its input."""
        with tf.device("CPU:0"):
            # Copied to a remote host once, not for every epoch.
            host = tf.zeros([]).device
            if host not in self._copies:
                self._copies[host] = [tf.identity(x) for x in self._arrays]
        return self._copies[host]


def rescaling(mean, std):
    """Returns arguments of `keras.layers.Rescaling` that normalise pixels."""
    mean, std = np.float32([mean, std])
    scale, offset = 1 / (255 * std), -mean / std
    return {"scale": scale.tolist(), "offset": offset.tolist()}


def shift_and_flip(images, shifts, flips, max_shift):
    """Pads each image with black, crops it at its shift and mirrors it."""
    height, width = images.shape[1:3]
    margin = [max_shift, max_shift]
    padded = tf.pad(images, [[0, 0], margin, margin, [0, 0]])
    rows = max_shift + shifts[:, :1] + tf.range(height)
    columns = tf.range(width)
    columns = tf.where(flips[:, tf.newaxis], columns[::-1], columns)
    columns += max_shift + shifts[:, 1:]
    # Gathering rows and then pixels is far faster than one crop per image.
    moved = tf.gather(padded, rows, axis=1, batch_dims=1)
    return tf.gather(moved, columns, axis=2, batch_dims=1)


def host_input(batches, batch_size):
    """Returns a function from an `InputContext` to batches of replicas."""

    def build(context):
        hosts = context.num_input_pipelines
        dataset = batches(batch_size, shard=(context.input_pipeline_id, hosts))
        replicas = context.num_replicas_in_sync // hosts
        if replicas == 1:
            return dataset
        num_batches = int(dataset.cardinality()) * replicas
        size = context.get_per_replica_batch_size(batch_size)
        known = tf.data.experimental.assert_cardinality(num_batches)
        dataset = dataset.rebatch(size, drop_remainder=True).apply(known)
        return dataset.prefetch(replicas)

    return build


def _check_shard(batch_size, shard):
    if batch_size % shard[1]:
        raise ValueError(
            "`batch_size` must be a multiple of the number of shards. "
            f"Received: batch_size={batch_size}, shard={shard}"
        )


def _rows(batch_size, shard):
    """Returns the rows of each global batch that belong to a shard."""
    index, count = shard
    return np.arange(batch_size).reshape(count, -1)[index]


def _finished(dataset, finish, num_batches, ahead):
    """Adds the last stage of every pipeline: `finish` and prefetching."""
    options = tf.data.Options()
    options.deterministic = True
    # Automatic sharding would change which examples are in the same batch.
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.OFF
    )
    # The autotuning thread often misses that its iterator was deleted, and the
    # program then waits for its next cycle, up to a minute.
    options.autotune.enabled = False
    dataset = dataset.map(finish, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.prefetch(ahead).with_options(options)
    # Makes the length known where records are read from files.
    return dataset.apply(tf.data.experimental.assert_cardinality(num_batches))
