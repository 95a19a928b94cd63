"""The input pipeline of training and evaluation: from examples to batches.

Random numbers depend only on (seed, epoch). The order and the augmentation of
an epoch do not depend on what ran before, so an interrupted run sees the same
batches as one that was not interrupted.
"""

import copy
import numbers

import numpy as np
import tensorflow as tf

# A number for each use of randomness, so that no two draw the same values.
ORDER, SHIFT, FLIP, FILES, BLOCKS, CROP = range(6)
# Fixed, because TensorFlow's default algorithm depends on the device.
_ALGORITHM = "philox"
_DTYPES = ("float32", "bfloat16", "uint8")
# Batches prefetched while the network runs; more would only use memory.
_EVAL_BATCHES_AHEAD = 2


class ImageData:
    """Batches of a data set's train, calibration and test splits.

    `caltrain_tf.data.get` returns such an object. `train_batches` and
    `eval_batches` return global batches; `train_input` and `eval_input` build
    one host's part of them for `strategy.distribute_datasets_from_function`.

    Args:
        name: The data set's name.
        spec: The data set's `Spec`.
        load: A function from a `Part` to its examples. It is called for every
            dataset, and caches the examples.
        parts: The `Part` of each split.
        dtype: Data type of the images: `"float32"` or `"bfloat16"` for
            normalised images, or `"uint8"` for pixels, which take a fourth of
            the bytes of float32. The network then normalises them on its
            device with
            `keras.layers.Rescaling(**data.rescaling, dtype="float32")`.

    Attributes:
        name: The data set's name.
        num_classes: The number of classes.
        image_shape: (height, width, channels).
        num_examples: The number of examples of each split.
        mean: Mean of each channel, for pixels in [0, 1].
        std: Standard deviation of each channel.
        dtype: Data type of the images.
    """

    def __init__(self, name, spec, load, parts, dtype="float32"):
        if dtype not in _DTYPES:
            raise ValueError(
                f"`dtype` must be one of {_DTYPES}. Received: dtype={dtype!r}"
            )
        self.name = name
        self.num_classes = spec.num_classes
        self.image_shape = spec.image_shape
        self.mean, self.std = spec.mean, spec.std
        self.dtype = dtype
        self._load = load
        self._take_parts(parts)

    @property
    def rescaling(self):
        """Arguments of `keras.layers.Rescaling` that normalise pixels."""
        scale, offset = _scale_and_offset(self.mean, self.std)
        return {"scale": scale.tolist(), "offset": offset.tolist()}

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

        They are a pure function of (`seed`, `epoch`) and do not depend on what
        ran before. Examples that do not fill a batch are left out of the epoch.

        Args:
            batch_size: Size of the global batch.
            epoch: The number of the epoch, from 0.
            seed: The seed of the run.
            first_step: The step of the epoch to start at; the steps before it
                are not computed.
            shard: (index, count): only the rows of each global batch that
                belong to process `index` of `count` are returned.

        Returns:
            A `tf.data.Dataset` of (image, label): images of the data set's
            dtype, and int32 class ids.
        """
        for name, value in (
            ("epoch", epoch),
            ("seed", seed),
            ("first_step", first_step),
        ):
            if not isinstance(value, numbers.Integral) or value < 0:
                raise ValueError(
                    f"`{name}` must be an integer >= 0. "
                    f"Received: {name}={value!r}"
                )
        rows = rows_of_shard(batch_size, shard)
        steps = self.steps_per_epoch(batch_size)
        if first_step > steps:
            raise ValueError(
                f"`first_step` must be at most the {steps} steps of an epoch. "
                f"Received: first_step={first_step}"
            )
        dataset = self._load(self._parts["train"]).train_batches(
            batch_size, epoch=epoch, seed=seed, first_step=first_step, rows=rows
        )

        def finish(images, labels):
            return self._finish(images), labels

        return _finished(dataset, finish, steps - first_step, tf.data.AUTOTUNE)

    def eval_batches(self, split, batch_size, *, shard=(0, 1), transform=None):
        """Returns batches of each example of a split once, in a fixed order.

        Args:
            split: "train" (without augmentation), "calibration" or "test".
            batch_size: Size of the global batch.
            shard: As in `train_batches`.
            transform: Function from uint8 images `(batch, height, width,
                channels)` and their places in the split `(batch,)` to uint8
                images of the same shape, such as a corruption.

        Returns:
            A `tf.data.Dataset` of (image, label, weight). Every batch is full;
            the last one is filled up with examples of weight 0.
        """
        if split not in self._parts:
            raise ValueError(
                f"`split` must be one of {tuple(self._parts)}. "
                f"Received: split={split!r}"
            )
        rows = rows_of_shard(batch_size, shard)
        size = self.num_examples[split]
        dataset = self._load(self._parts[split]).eval_batches(
            batch_size, rows=rows
        )

        def finish(images, labels, places):
            if transform is not None:
                shape = images.shape
                images = tf.ensure_shape(transform(images, places), shape)
            weights = tf.cast(places < size, tf.float32)
            return self._finish(images), labels, weights

        num_batches = -(-size // batch_size)
        return _finished(dataset, finish, num_batches, _EVAL_BATCHES_AHEAD)

    def train_input(self, batch_size, *, seed=0):
        """Returns a function that builds one host's part of an epoch.

        The function is for `strategy.distribute_datasets_from_function`, which
        calls it once on each host:

            build = data.train_input(512, seed=1)
            strategy.distribute_datasets_from_function(
                lambda context: build(epoch, context)
            )

        A host computes only its B / `context.num_input_pipelines` consecutive
        rows of each global batch of size B. As TensorFlow requires, it yields
        them as batches of B / `context.num_replicas_in_sync`, one for each of
        its replicas, in order. The batches of all replicas in a step,
        concatenated in the order of the replicas, are the global batch of
        `train_batches`.

        Args:
            batch_size: Size of the global batch, a multiple of the number of
                replicas.
            seed: The seed of the run.

        Returns:
            A function `(epoch, context, first_step=0)`, where `context` is a
            `tf.distribute.InputContext`. It returns a `tf.data.Dataset` of
            (image, label) that starts at `first_step`; the steps before it are
            not computed. An epoch has `data.steps_per_epoch(batch_size)` steps.
        """

        def build(epoch, context, first_step=0):
            dataset = self.train_batches(
                batch_size,
                epoch=epoch,
                seed=seed,
                first_step=first_step,
                shard=_shard_of(context),
            )
            return _of_replicas(dataset, batch_size, context)

        return build

    def eval_input(self, split, batch_size, *, transform=None):
        """Returns a function that builds one host's part of a split.

        This is `train_input` for evaluation.

        Args:
            split: As in `eval_batches`.
            batch_size: Size of the global batch, a multiple of the number of
                replicas.
            transform: As in `eval_batches`.

        Returns:
            A function of a `tf.distribute.InputContext`. It returns a
            `tf.data.Dataset` of (image, label, weight).
        """

        def build(context):
            dataset = self.eval_batches(
                split,
                batch_size,
                shard=_shard_of(context),
                transform=transform,
            )
            return _of_replicas(dataset, batch_size, context)

        return build

    def interleaved(self, held_out_fraction=0.1):
        """Splits the training set for interleaved training.

        Args:
            held_out_fraction: The fraction of the training set that is held
                out. It is taken from the end.

        Returns:
            Two `ImageData` objects whose training sets are the majority part
            and the held-out part. Their other splits are unchanged.
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
        both = copy.copy(self), copy.copy(self)
        for data, bounds in zip(
            both, ({"stop": middle}, {"start": middle}), strict=True
        ):
            data._take_parts({**self._parts, "train": train._replace(**bounds)})
        return both

    def with_test(self, part, load):
        """Returns a copy whose only split is the given test split."""
        data = copy.copy(self)
        data._load = load
        data._take_parts({"test": part})
        return data

    def _take_parts(self, parts):
        self._parts = parts
        self.num_examples = {split: part.size for split, part in parts.items()}

    def _finish(self, images):
        if self.dtype == "uint8":
            return images
        return normalize(images, self.mean, self.std, self.dtype)


class InMemoryImages:
    """A small data set, decoded once and kept in memory.

    A batch is a pure function of its number, so any step of any epoch can be
    computed without the steps before it.

    Args:
        images: uint8 `(examples, height, width, channels)`.
        labels: Class ids, `(examples,)`.
        max_shift: The largest shift of a training image, in pixels.
        flip: Whether half of the training images are mirrored.
    """

    def __init__(self, images, labels, *, max_shift=0, flip=False):
        self._max_shift = max_shift
        self._flip = flip
        self._size = len(labels)
        # The input pipeline runs on the host even if there are accelerators.
        with tf.device("CPU:0"):
            self._images = tf.constant(images, tf.uint8)
            self._labels = tf.cast(labels, tf.int32)

    def train_batches(self, batch_size, *, epoch, seed, first_step, rows):
        """Returns a dataset of (images, labels) in an epoch's own order.

        Args:
            batch_size: Size of the global batch.
            epoch: The epoch's number.
            seed: The run's seed.
            first_step: The step of the epoch to start at.
            rows: The range of rows of each global batch to return.
        """
        # Drawn for the whole epoch, so that the values do not depend on the
        # batch size.
        most = self._max_shift
        with tf.device("CPU:0"):
            order = permutation(self._size, key(seed, epoch, ORDER))
            shifts = integers(
                [self._size, 2], -most, most, key(seed, epoch, SHIFT)
            )
            flips = integers(
                [self._size], 0, int(self._flip), key(seed, epoch, FLIP)
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

        The last batch is filled up with copies of the last example, whose
        places are at least the number of examples.
        """
        offsets = tf.range(rows.start, rows.stop, dtype=tf.int64)

        def batch(step):
            places = step * batch_size + offsets
            chosen = tf.minimum(places, self._size - 1)
            return (
                tf.gather(self._images, chosen),
                tf.gather(self._labels, chosen),
                places,
            )

        steps = tf.data.Dataset.range(-(-self._size // batch_size))
        return steps.map(batch, num_parallel_calls=tf.data.AUTOTUNE)


def shift_and_flip(images, shifts, flips, max_shift):
    """Shifts and mirrors each image of a batch by its own amounts.

    This is the same as padding with `max_shift` black pixels on every side,
    cropping at offset `max_shift` + shift, and then mirroring left and right.

    Args:
        images: `(batch, height, width, channels)` of any type.
        shifts: Shifts of the crop, down and to the right, `(batch, 2)`,
            integers from -`max_shift` to `max_shift`.
        flips: 1 where the image is mirrored, else 0, `(batch,)`.
        max_shift: The padding.

    Returns:
        Images of the same shape and type.

    Example:
        >>> image = tf.reshape(tf.range(1, 5), [1, 2, 2, 1])
        >>> shift_and_flip(image, [[1, 0]], [1], 1)[0, :, :, 0].numpy()
        array([[4, 3],
               [0, 0]], dtype=int32)
    """
    shifts, flips = tf.convert_to_tensor(shifts), tf.convert_to_tensor(flips)
    height, width = images.shape[1:3]
    margin = [max_shift, max_shift]
    padded = tf.pad(images, [[0, 0], margin, margin, [0, 0]])
    rows = max_shift + shifts[:, :1] + tf.range(height)
    columns = tf.where(
        flips[:, tf.newaxis] == 1,
        tf.range(width)[::-1],
        tf.range(width),
    )
    columns += max_shift + shifts[:, 1:]
    # Gathering rows and then pixels is twice as fast as
    # `ImageProjectiveTransformV3`, and far faster than one crop per image.
    moved = tf.gather(padded, rows, axis=1, batch_dims=1)
    return tf.gather(moved, columns, axis=2, batch_dims=1)


def normalize(images, mean, std, dtype="float32"):
    """Normalises each channel to about mean 0 and standard deviation 1.

    (pixel / 255 - mean) / std

    Args:
        images: uint8 `(batch, height, width, channels)`.
        mean: Mean of each channel, for pixels in [0, 1].
        std: Standard deviation of each channel.
        dtype: Data type of the result, which is computed in float32.

    Returns:
        Images of the same shape.

    Example:
        >>> normalize(np.uint8([[[[0, 255]]]]), [0.5, 0.5], [0.25, 0.5]).numpy()
        array([[[[-2.,  1.]]]], dtype=float32)
    """
    images = tf.convert_to_tensor(images)
    height, width, channels = images.shape[1:]
    # Broadcasting over three channels instead of whole rows takes three times
    # as long.
    rows = tf.reshape(images, [-1, height, width * channels])
    scale, offset = (
        np.tile(values, width) for values in _scale_and_offset(mean, std)
    )
    rows = tf.cast(rows, tf.float32) * scale + offset
    return tf.cast(tf.reshape(rows, tf.shape(images)), dtype)


def rows_of_shard(batch_size, shard):
    """Returns the range of rows of each global batch that a process takes.

    The rows of the processes, concatenated in the order of their indices, are
    the global batch.

    Args:
        batch_size: Size of the global batch.
        shard: (index, count), the process's index and the number of processes.

    Returns:
        A `range`.

    Example:
        >>> rows_of_shard(512, (1, 2))
        range(256, 512)
    """
    index, count = shard
    if not 0 <= index < count:
        raise ValueError(
            "`shard` must be (index, count) with 0 <= index < count. "
            f"Received: shard={shard}"
        )
    is_integer = isinstance(batch_size, numbers.Integral)
    if not is_integer or batch_size < 1 or batch_size % count:
        raise ValueError(
            "`batch_size` must be an integer >= 1 and a multiple of the "
            f"number of shards, {count}. Received: batch_size={batch_size!r}"
        )
    size = batch_size // count
    return range(index * size, (index + 1) * size)


def keep_rows(dataset, batch_size, rows):
    """Filters a dataset of (place, example) to the rows of a shard."""
    if len(rows) == batch_size:
        return dataset

    def is_kept(place, _):
        row = place % batch_size
        return (row >= rows.start) & (row < rows.stop)

    return dataset.filter(is_kept)


def key(seed, epoch, purpose):
    """Returns the seed of one use of randomness in an epoch."""
    # The input pipeline runs on the host even if there are accelerators.
    with tf.device("CPU:0"):
        return fold(tf.constant([seed, epoch], tf.int64), purpose)


def fold(parent, number):
    """Returns the seed of item `number`, derived from the seed `parent`."""
    return tf.random.fold_in(parent, number, alg=_ALGORITHM)


def integers(shape, low, high, seed):
    """Returns uniform int32 values from `low` to `high`, both included."""
    return tf.random.stateless_uniform(
        shape, seed, low, high + 1, tf.int32, alg=_ALGORITHM
    )


def permutation(size, seed):
    """Returns the int32 numbers 0 to `size` - 1 in random order."""
    bits = tf.random.stateless_uniform(
        [size], seed, None, None, tf.int64, alg=_ALGORITHM
    )
    return tf.argsort(bits, stable=True)


def _finished(dataset, finish, num_batches, ahead):
    """Adds the last stage of every pipeline: `finish` and prefetching."""
    options = tf.data.Options()
    options.deterministic = True
    # Automatic sharding would change which examples are in the same batch.
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.OFF
    )
    # The autotuning thread often misses that its iterator was deleted. The
    # program then waits for the thread's next cycle: up to as long as the
    # iterator lived, or a minute.
    options.autotune.enabled = False
    dataset = dataset.map(finish, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.prefetch(ahead).with_options(options)
    # Makes the length known even if records were filtered.
    return dataset.apply(tf.data.experimental.assert_cardinality(num_batches))


def _shard_of(context):
    return context.input_pipeline_id, context.num_input_pipelines


def _of_replicas(dataset, batch_size, context):
    """Splits a host's batches into the batches of its replicas."""
    num_batches = int(dataset.cardinality())
    replicas = context.num_replicas_in_sync // context.num_input_pipelines
    if replicas == 1:
        return dataset
    size = context.get_per_replica_batch_size(batch_size)
    dataset = dataset.rebatch(size, drop_remainder=True)
    num_batches = num_batches * replicas
    dataset = dataset.apply(
        tf.data.experimental.assert_cardinality(num_batches)
    )
    return dataset.prefetch(replicas)


def _scale_and_offset(mean, std):
    mean, std = np.float32([mean, std])
    return 1 / (255 * std), -mean / std
