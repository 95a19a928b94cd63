"""A data set as batches for training and evaluation."""

import numbers

import tensorflow as tf

from caltrain_tf.data.finished import finished
from caltrain_tf.data.normalize import normalize
from caltrain_tf.data.passes import BATCHES_AHEAD
from caltrain_tf.data.passes import Passes
from caltrain_tf.data.passes import transformed
from caltrain_tf.data.shards import rows_of_shard

_DTYPES = ("float32", "bfloat16")


class ImageData:
    """Batches of a data set's train, calibration and test splits.

    Made by `caltrain_tf.data.get`. Batches are *global* ones; with several
    processes, each may ask for its rows of them (`shard`), for instance in
    `strategy.distribute_datasets_from_function` with the context's
    `input_pipeline_id` and `num_input_pipelines`. Auto-sharding is switched
    off: it would pick examples by file or by position, and so change which
    examples meet in a batch.

    Attributes:
        name: The data set's name.
        num_classes: The number of classes.
        image_shape: (height, width, channels).
        num_examples: The number of examples of each split.
    """

    def __init__(self, name, spec, load, parts, dtype="float32"):
        """Takes the data set's parts.

        Args:
            name: The data set's name.
            spec: Its `Spec`.
            load: From a `Part` to its examples; it keeps what it loaded.
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
        self._load = load
        self._parts = parts
        self._dtype = dtype

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
            return self._normalize(images), labels

        return _known(finished(dataset, finish), steps - first_step)

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
        rows = rows_of_shard(batch_size, shard)
        dataset = self._examples(split).eval_batches(batch_size, rows=rows)
        if transform is not None:
            dataset = transformed(dataset, transform)
        dataset = finished(dataset, self._finish(split), BATCHES_AHEAD)
        return _known(dataset, -(-self.num_examples[split] // batch_size))

    def eval_passes(self, split, batch_size, transforms, num_batches):
        """Returns the first batches of a split once for each transform.

        Args:
            split: As in `eval_batches`.
            batch_size: The same.
            transforms: A sequence of functions as `transform` there.
            num_batches: Of each pass.

        Returns:
            `Passes`, an iterable of batches as there.
        """
        return Passes(
            self._examples(split),
            batch_size,
            transforms,
            num_batches,
            self._finish(split),
        )

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
                self._load,
                {**self._parts, "train": train._replace(**bounds)},
                self._dtype,
            )
            for bounds in ({"stop": middle}, {"start": middle})
        )

    def _examples(self, split):
        if split not in self._parts:
            raise ValueError(
                f"`split` must be one of {tuple(self._parts)}. "
                f"Received: split={split!r}"
            )
        return self._load(self._parts[split])

    def _finish(self, split):
        def finish(images, labels, places):
            weights = tf.cast(places < self.num_examples[split], tf.float32)
            return self._normalize(images), labels, weights

        return finish

    def _normalize(self, images):
        spec = self._spec
        return normalize(images, spec.mean, spec.std, self._dtype)


def _known(dataset, num_batches):
    """Tells `len`, also where records are filtered."""
    return dataset.apply(tf.data.experimental.assert_cardinality(num_batches))


def _check_not_negative(**values):
    for name, value in values.items():
        if not isinstance(value, numbers.Integral) or value < 0:
            raise ValueError(
                f"`{name}` must be an integer >= 0. Received: {name}={value!r}"
            )
