"""The batches of a data set, on one host or on several.

Batches are a function of the seed, the epoch and the step, so an interrupted
run sees the same ones as a run that was not interrupted.
"""

import copy
import functools
import numbers

import numpy as np
import tensorflow as tf

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
        load: A function from a `Part` to its examples, `InMemoryImages` or
            `JpegRecords`. It is called for every dataset, and caches them.
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
        self._parts = parts

    @property
    def num_examples(self):
        """The number of examples of each split."""
        return {split: part.size for split, part in self._parts.items()}

    @property
    def rescaling(self):
        """Arguments of `keras.layers.Rescaling` that normalise pixels."""
        mean, std = np.float32([self.mean, self.std])
        return {
            "scale": (1 / (255 * std)).tolist(),
            "offset": (-mean / std).tolist(),
        }

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

        An example is in at most one batch of an epoch. Those that do not fill
        the last batch, fewer than `batch_size`, are left out; they are others
        in every epoch.

        Args:
            batch_size: Size of the global batch.
            epoch: The number of the epoch, from 0.
            seed: The seed of the run.
            first_step: The step of the epoch to start at; the images of the
                steps before it are not decoded.
            shard: (index, count): only the part of each global batch that
                belongs to process `index` of `count` is returned. All have the
                same number of steps. The global batch of images in memory is
                the same for any count. Images in record files are read from
                the files of the process, so that their order depends on it.

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
        _check_shard(batch_size, shard)
        steps = self.steps_per_epoch(batch_size)
        if first_step > steps:
            raise ValueError(
                f"`first_step` must be at most the {steps} steps of an epoch. "
                f"Received: first_step={first_step}"
            )
        dataset = self._load(self._parts["train"]).train_batches(
            batch_size,
            epoch=epoch,
            seed=seed,
            first_step=first_step,
            shard=shard,
        )

        def finish(images, labels):
            return self._finish(images), labels

        return _finished(dataset, finish, steps - first_step, tf.data.AUTOTUNE)

    def eval_batches(self, split, batch_size, *, shard=(0, 1), transform=None):
        """Returns batches of each example of a split once, in a fixed order.

        Args:
            split: "train" (without augmentation), "calibration" or "test".
            batch_size: Size of the global batch.
            shard: As in `train_batches`. Together, the processes have each
                example once.
            transform: Function from uint8 images `(batch, height, width,
                channels)` and their places in the split `(batch,)` to uint8
                images of the same shape, such as a corruption.

        Returns:
            A `tf.data.Dataset` of (image, label, weight). Every batch is full;
            the last ones are filled up with examples of weight 0.
        """
        if split not in self._parts:
            raise ValueError(
                f"`split` must be one of {tuple(self._parts)}. "
                f"Received: split={split!r}"
            )
        _check_shard(batch_size, shard)
        size = self._parts[split].size
        examples = self._load(self._parts[split])
        dataset = examples.eval_batches(batch_size, shard=shard)

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

        `Trainer.fit` takes it. `strategy.distribute_datasets_from_function`
        calls it once on each host, which computes its examples of each global
        batch as `train_batches` does for a shard, and yields them as one batch
        for each of its replicas.

        Args:
            batch_size: Size of the global batch, a multiple of the number of
                replicas.
            seed: The seed of the run.

        Returns:
            A function `(epoch, context, first_step=0)`, where `context` is a
            `tf.distribute.InputContext`, to a `tf.data.Dataset` of
            (image, label).
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

        This is `train_input` for evaluation: a function of a
        `tf.distribute.InputContext` to a dataset of (image, label, weight).
        `split` and `transform` are those of `eval_batches`.
        """
        batches = functools.partial(
            self.eval_batches, split, transform=transform
        )
        return host_input(batches, batch_size)

    def interleaved(self, held_out_fraction=0.1):
        """Splits the training set for interleaved training.

        Returns two `ImageData` whose training sets are the majority part and,
        from the end, the held-out part. Their other splits are unchanged.
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
        halves = train._replace(stop=middle), train._replace(start=middle)
        return tuple(
            self._with({**self._parts, "train": half}) for half in halves
        )

    def with_test(self, examples):
        """Returns a copy whose only split is "test", with other examples."""
        return self._with({"test": examples}, lambda part: part)

    def _with(self, parts, load=None):
        data = copy.copy(self)
        data._parts = parts
        data._load = load or self._load
        return data

    def _finish(self, images):
        if self.dtype == "uint8":
            return images
        images = tf.cast(images, tf.float32)
        images = images * self.rescaling["scale"] + self.rescaling["offset"]
        return tf.cast(images, self.dtype)


def generator(seed, epoch):
    """Returns the random numbers of an epoch."""
    return np.random.Generator(np.random.Philox(key=[seed, epoch]))


def _check_shard(batch_size, shard):
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
    # Makes the length known where records are read from files.
    return dataset.apply(tf.data.experimental.assert_cardinality(num_batches))


def host_input(batches, batch_size):
    """Returns a function that builds one host's part of an evaluation.

    `batches` is a function `(batch_size, shard=(host, hosts))`.
    """

    def build(context):
        dataset = batches(batch_size, shard=_shard_of(context))
        return _of_replicas(dataset, batch_size, context)

    return build


def _shard_of(context):
    return context.input_pipeline_id, context.num_input_pipelines


def _of_replicas(dataset, batch_size, context):
    """Splits a host's batches into the batches of its replicas."""
    replicas = context.num_replicas_in_sync // context.num_input_pipelines
    if replicas == 1:
        return dataset
    num_batches = int(dataset.cardinality()) * replicas
    size = context.get_per_replica_batch_size(batch_size)
    dataset = dataset.rebatch(size, drop_remainder=True)
    dataset = dataset.apply(
        tf.data.experimental.assert_cardinality(num_batches)
    )
    return dataset.prefetch(replicas)
