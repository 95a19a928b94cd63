"""Corrupted test sets, either stored or generated from the clean images."""

import os

import numpy as np
import tensorflow as tf

from caltrain_tf.data import corruptions
from caltrain_tf.data.corruptions.weather import installed_photographs
from caltrain_tf.data.datasets import Part
from caltrain_tf.data.pipeline import InMemoryImages, keep_rows

# Change this with the corrupted images, so that stored predictions for earlier
# images are discarded.
_REVISION = "revision 5"
# Names of the corrupted sets in TensorFlow Datasets, and of those corruptions
# that it names differently.
_STORED = {
    "cifar10": "cifar10_corrupted",
    "imagenet": "imagenet2012_corrupted",
}
_STORED_CORRUPTIONS = {
    "cifar10": {
        "glass_blur": "frosted_glass_blur",
        "elastic_transform": "elastic",
    }
}


def shifted_sets(
    data, *, corrupted_dir=None, data_dir=None, seed=0, frost_dir=None
):
    """Returns the best available corrupted versions of a test split.

    These are the sets in `corrupted_dir` if it is given; otherwise those of
    TensorFlow Datasets (`cifar10_corrupted`, `imagenet2012_corrupted`) if all
    75 are present; otherwise they are generated on the fly.

    Args:
        data: The clean data, an `ImageData`.
        corrupted_dir: A folder of the published arrays, `<corruption>.npy` and
            `labels.npy`, as CIFAR-10-C and CIFAR-100-C are distributed.
        data_dir: The folder of TensorFlow Datasets.
        seed: Seed for corruptions that are generated on the fly.
        frost_dir: Folder of frost photographs for them; see `corruptions.get`.

    Returns:
        An object with `source` (a description), `num_examples`, and
        `batches(corruption, severity, batch_size, shard=(0, 1))`, which returns
        a dataset of (image, label, weight) as `ImageData.eval_batches` does.
    """
    if corrupted_dir is not None:
        return PublishedArrays(data, corrupted_dir)
    # All are required, because TensorFlow Datasets prepares a single one if no
    # configuration is named.
    if all(
        find_corrupted(data.name, name, severity, data_dir) is not None
        for name in corruptions.NAMES
        for severity in corruptions.SEVERITIES
    ):
        return StoredSets(data, data_dir)
    return GeneratedSets(data, seed=seed, frost_dir=frost_dir)


class GeneratedSets:
    """Corrupted test sets that are generated from the clean test images.

    Args:
        data: An `ImageData`, or another object with its `eval_batches` and
            `num_examples["test"]`.
        seed: Seed of the random numbers.
        frost_dir: As in `corruptions.get`.
    """

    def __init__(self, data, *, seed=0, frost_dir=None):
        self._data = data
        self._options = {"seed": seed, "frost_dir": frost_dir}
        photographs = frost_dir or installed_photographs()
        frost = "photographs" if photographs else "a generated texture"
        self.source = (
            f"made on the fly, seed {seed}, frost of {frost}, {_REVISION}"
        )
        self.num_examples = data.num_examples["test"]

    def batches(self, corruption, severity, batch_size, shard=(0, 1)):
        """Returns the batches of one set."""
        transform = corruptions.get(corruption, severity, **self._options)
        return self._data.eval_batches(
            "test", batch_size, shard=shard, transform=transform
        )


class PublishedArrays:
    """Corrupted test sets in the format of CIFAR-10-C and CIFAR-100-C.

    Args:
        data: The clean `ImageData`, whose normalisation is used.
        folder: Folder of `<corruption>.npy`, uint8 `(5 N, height, width, 3)`
            with one severity after the other, and `labels.npy`, `(5 N,)`.
    """

    def __init__(self, data, folder):
        self._data = data
        self._folder = os.fspath(folder)
        count = len(corruptions.SEVERITIES)
        labels = self._load("labels")
        if labels.ndim != 1 or len(labels) % count:
            raise ValueError(
                "`corrupted_dir` must hold labels of 5 severities, (5 N,). "
                f"Received: shape={labels.shape} in {self._folder}"
            )
        labels = labels.reshape(count, -1)
        if (labels != labels[0]).any():
            raise ValueError(
                "`corrupted_dir` must hold the same labels for each severity. "
                f"Received: other ones in {self._folder}"
            )
        self._labels = labels[0]
        self.num_examples = len(self._labels)
        self.source = f"arrays of {os.path.abspath(self._folder)}"

    def batches(self, corruption, severity, batch_size, shard=(0, 1)):
        """Returns the batches of one set."""
        images = self._load(corruption)
        count = self.num_examples
        expected = (
            len(corruptions.SEVERITIES) * count,
            *self._data.image_shape,
        )
        if images.shape != expected or images.dtype != np.uint8:
            raise ValueError(
                f"`{corruption}.npy` must be uint8 of shape {expected}. "
                f"Received: dtype={images.dtype}, shape={images.shape}"
            )
        images = images[(severity - 1) * count : severity * count]
        examples = InMemoryImages(images, self._labels)
        test = self._data.with_test(Part("test", 0, count), lambda _: examples)
        return test.eval_batches("test", batch_size, shard=shard)

    def _load(self, name):
        path = os.path.join(self._folder, f"{name}.npy")
        if not os.path.exists(path):
            raise FileNotFoundError(
                f"`corrupted_dir` must hold {name}.npy, as CIFAR-10-C and "
                "CIFAR-100-C are distributed. "
                f"Received: corrupted_dir={self._folder!r}"
            )
        # With memory mapping, only the requested severity is read.
        return np.load(path, mmap_mode="r", allow_pickle=False)


class StoredSets:
    """Corrupted test sets stored by TensorFlow Datasets.

    Args:
        data: The clean `ImageData`.
        data_dir: The folder of TensorFlow Datasets.
    """

    def __init__(self, data, data_dir=None):
        self._data = data
        self._data_dir = data_dir
        first = self._builder("brightness", 1)
        self.source = f"TensorFlow Datasets, {first.info.name}"
        self.num_examples = _StoredImages(first, data.image_shape).size

    def batches(self, corruption, severity, batch_size, shard=(0, 1)):
        """Returns the batches of one set."""
        builder = self._builder(corruption, severity)
        examples = _StoredImages(builder, self._data.image_shape)
        part = Part("test", 0, examples.size)
        test = self._data.with_test(part, lambda _: examples)
        return test.eval_batches("test", batch_size, shard=shard)

    def _builder(self, corruption, severity):
        builder = find_corrupted(
            self._data.name, corruption, severity, self._data_dir
        )
        if builder is None:
            raise FileNotFoundError(
                f"TensorFlow Datasets has no {corruption!r} of severity "
                f"{severity} of {self._data.name!r}. "
                f"Received: data_dir={self._data_dir!r}"
            )
        return builder


def find_corrupted(name, corruption, severity, data_dir=None):
    """Returns the builder of a corrupted set, or None if it is not stored.

    Args:
        name: Name of the clean data set.
        corruption: The corruption.
        severity: 1 to 5.
        data_dir: The folder of TensorFlow Datasets.
    """
    if name not in _STORED:
        return None
    import tensorflow_datasets as tfds

    config = f"{stored_name(name, corruption)}_{severity}"
    try:
        return tfds.core.read_only_builder.builder_from_files(
            f"{_STORED[name]}/{config}", data_dir=data_dir
        )
    except tfds.core.DatasetNotFoundError:
        return None


def stored_name(name, corruption):
    """Returns the name of a corruption in TensorFlow Datasets.

    Args:
        name: Name of the clean data set.
        corruption: The corruption.

    Example:
        >>> stored_name("cifar10", "elastic_transform")
        'elastic'
    """
    return _STORED_CORRUPTIONS.get(name, {}).get(corruption, corruption)


class _StoredImages:
    """Batches of the images of a builder's only split, without cropping.

    Published images are already cropped; images of another size are resized.
    """

    def __init__(self, builder, image_shape):
        self._builder = builder
        self._image_shape = image_shape
        (self._split,) = builder.info.splits
        self.size = builder.info.splits[self._split].num_examples

    def eval_batches(self, batch_size, *, rows):
        height, width, _ = self._image_shape

        def example(place, features):
            image = features["image"]
            if image.shape[:2] != (height, width):
                image = tf.image.resize(image, (height, width), "bicubic")
                image = tf.saturate_cast(tf.round(image), tf.uint8)
            image = tf.ensure_shape(image, self._image_shape)
            return image, tf.cast(features["label"], tf.int32), place

        stored = self._builder.as_dataset(split=self._split)
        padding = stored.take(1).repeat(-self.size % batch_size)
        dataset = stored.concatenate(padding).enumerate()
        dataset = keep_rows(dataset, batch_size, rows)
        dataset = dataset.map(example, num_parallel_calls=tf.data.AUTOTUNE)
        return dataset.batch(len(rows), drop_remainder=True)
