"""Corrupted test sets, either published or generated from the clean images."""

import functools
import os

import numpy as np
import tensorflow as tf

from caltrain_tf import files
from caltrain_tf.data import corruptions, imagenet, pipeline

# Change this with the corrupted images, so that stored predictions for earlier
# images are discarded.
_REVISION = "frost of a generated texture, revision 6"
# The names of published sets, there and in TensorFlow Datasets.
_PUBLISHED = {
    "cifar10": ("CIFAR-10-C", "cifar10_corrupted"),
    "cifar100": ("CIFAR-100-C", "cifar100_corrupted"),
    "imagenet": ("ImageNet-C", "imagenet2012_corrupted"),
}
# Sets of TensorFlow Datasets that have names of their own.
_OTHER_NAMES = {
    "cifar10_corrupted/glass_blur": "cifar10_corrupted/frosted_glass_blur",
    "cifar10_corrupted/elastic_transform": "cifar10_corrupted/elastic",
}


def shifted_sets(
    data,
    *,
    corrupted_dir=None,
    data_dir=None,
    generated=False,
    names=corruptions.NAMES,
    severities=corruptions.SEVERITIES,
):
    """Returns corrupted versions of the test split of `data`.

    These are the published sets in `corrupted_dir`, as they are distributed:
    `<corruption>.npy` and `labels.npy` (CIFAR-10-C, CIFAR-100-C) or
    `<corruption>/<severity>/<class>/*.JPEG` (ImageNet-C). Without it, they are
    those of TensorFlow Datasets in `data_dir`.

    A set of `names` and `severities` that is missing is an error, because
    results on published and generated images differ. Images are generated with
    `generated=True`, and for data without published sets: `digits` and your own
    images. The sets of embeddings are in the folder of the embeddings.

    Returns:
        An object with `source` (a description), `is_generated`, `num_examples`
        and `batches(corruption, severity, batch_size, shard=(0, 1))`, which
        returns a dataset as `ImageData.eval_batches` does, and
        `eval_input(corruption, severity, batch_size)`.
    """
    if corrupted_dir is not None and generated:
        raise ValueError(
            "`corrupted_dir` and `generated` exclude each other. "
            f"Received: corrupted_dir={corrupted_dir!r}, generated=True"
        )
    if data.is_embedded:
        folder = corrupted_dir or data.name.removeprefix("npz:")
        sets = _EmbeddedSets(data, folder)
    elif generated or (corrupted_dir is None and data.name not in _PUBLISHED):
        return GeneratedSets(data)
    elif corrupted_dir is None:
        sets = _StoredSets(data, data_dir)
    elif tf.io.gfile.exists(os.path.join(corrupted_dir, "labels.npy")):
        sets = _PublishedArrays(data, corrupted_dir)
    else:
        sets = _PublishedImages(data, corrupted_dir)
    for name in names:
        for severity in severities:
            sets.find(name, severity)
    return sets


class _Sets:
    """Sets in a folder: `find` says where one is, `_read` reads it there."""

    is_generated = False

    def __init__(self, data, folder):
        self._data = data
        self._folder = os.fspath(folder)
        self.source = f"{self._kind} of {os.path.abspath(self._folder)}"
        self.num_examples = data.num_examples["test"]

    def find(self, corruption, severity):
        """Returns the path of a set, or raises."""
        name = self._path.format(corruption, severity)
        path = os.path.join(self._folder, name)
        if not tf.io.gfile.exists(path):
            raise FileNotFoundError(
                f"`corrupted_dir` must hold the {self._kind} {name}. "
                f"Received: corrupted_dir={self._folder!r}"
            )
        return path

    def batches(self, corruption, severity, batch_size, shard=(0, 1)):
        """Returns the batches of one set."""
        found = self.find(corruption, severity)
        test = self._data.with_test(self._read(found, severity))
        return test.eval_batches("test", batch_size, shard=shard)

    def eval_input(self, corruption, severity, batch_size):
        """Returns one set as `ImageData.eval_input` returns a split."""
        batches = functools.partial(self.batches, corruption, severity)
        return pipeline.host_input(batches, batch_size)


class GeneratedSets(_Sets):
    """Corrupted test sets that are generated from the clean test images."""

    is_generated = True

    def __init__(self, data, *, seed=0):
        self._data = data
        self._seed = seed
        self.source = f"made on the fly, seed {seed}, {_REVISION}"
        self.num_examples = data.num_examples["test"]

    def batches(self, corruption, severity, batch_size, shard=(0, 1)):
        """Returns the batches of one set."""
        transform = corruptions.get(corruption, severity, seed=self._seed)
        return self._data.eval_batches(
            "test", batch_size, shard=shard, transform=transform
        )


class _EmbeddedSets(_Sets):
    """Embeddings, as `baselines/embed.py` writes them."""

    _kind, _path = "embeddings", "{}_{}.npz"

    def __init__(self, data, folder):
        super().__init__(data, folder)
        # They may be of the first test images alone (`--num_examples`).
        for path in sorted(files.as_path(folder).glob("*_[1-5].npz"))[:1]:
            self.num_examples = len(files.read_npz(path)["y"])

    def _read(self, path, severity):
        arrays = files.read_npz(path)
        return pipeline.InMemoryImages(arrays["x"], arrays["y"])


class _PublishedArrays(_Sets):
    """CIFAR-10-C and CIFAR-100-C: arrays of all severities, `(5 N, ...)`."""

    _kind, _path = "arrays", "{}.npy"

    def __init__(self, data, folder):
        super().__init__(data, folder)
        labels = np.load(os.path.join(self._folder, "labels.npy"))
        self._labels = labels.reshape(5, -1)
        self.num_examples = self._labels.shape[1]

    def _read(self, path, severity):
        # With memory mapping, only the requested severity is read.
        images = np.load(path, mmap_mode="r")
        shape = self._labels.size, *self._data.image_shape
        if images.shape != shape or images.dtype != np.uint8:
            raise ValueError(
                f"{path} must be uint8 of shape {shape}. "
                f"Received: dtype={images.dtype}, shape={images.shape}"
            )
        images = images.reshape(*self._labels.shape, *shape[1:])[severity - 1]
        return pipeline.InMemoryImages(images, self._labels[severity - 1])


class _PublishedImages(_Sets):
    """ImageNet-C: folders of classes, sorted by name, such as `n01440764`.

    Images are not cropped, but resized to the input of the network.
    """

    _kind, _path = "images", "{}/{}"

    def __init__(self, data, folder):
        super().__init__(data, folder)
        found = tf.io.gfile.glob(os.path.join(self._folder, "*", "[1-5]"))
        if not found:
            raise FileNotFoundError(
                "`corrupted_dir` must hold labels.npy and <corruption>.npy, or "
                "<corruption>/<severity>/<class>/*.JPEG. "
                f"Received: corrupted_dir={self._folder!r}"
            )
        self.num_examples = len(_list_images(min(found)))

    def _read(self, folder, severity):
        paths = _list_images(folder)
        classes, labels = np.unique(
            [path.split("/")[-2] for path in paths], return_inverse=True
        )
        if len(classes) != self._data.num_classes:
            raise ValueError(
                f"`corrupted_dir` must hold {self._data.num_classes} folders "
                "of classes in each <corruption>/<severity>. "
                f"Received: {len(classes)} in {folder}"
            )

        def read(start, stop):
            found = paths[start:stop], labels[start:stop]
            return tf.data.Dataset.from_tensor_slices(found).enumerate(start)

        def decode(record):
            image = tf.io.decode_jpeg(tf.io.read_file(record[0]), channels=3)
            return imagenet.resize(image, self._data.image_shape), record[1]

        return imagenet.StoredImages(len(paths), read, decode)


class _StoredSets(_Sets):
    """Sets of TensorFlow Datasets, whose images are treated in the same way."""

    def __init__(self, data, data_dir):
        self._data = data
        self._data_dir = data_dir
        self._published, self._name = _PUBLISHED[data.name]
        self.source = f"TensorFlow Datasets, {self._name}"

    def find(self, corruption, severity):
        """Returns the builder of a set."""
        import tensorflow_datasets as tfds

        name = f"{self._name}/{corruption}"
        name = f"{_OTHER_NAMES.get(name, name)}_{severity}"
        try:
            builder = tfds.core.read_only_builder.builder_from_files(
                name, data_dir=self._data_dir
            )
        except tfds.core.DatasetNotFoundError as error:
            raise FileNotFoundError(
                f"{corruption!r} of severity {severity} of {self._data.name!r} "
                f"is missing. There is no {name} in "
                f"{self._data_dir or '~/tensorflow_datasets'}. Pass the folder "
                f"of {self._published} as it is distributed as "
                "`corrupted_dir`, or generate images from the clean test set: "
                "`generated=True`, or `--generated`."
            ) from error
        # All sets have the same number.
        self.num_examples = builder.info.splits.total_num_examples
        return builder

    def _read(self, builder, severity):
        (split,) = builder.info.splits.values()
        shape = self._data.image_shape

        def decode(record):
            example = builder.info.features.deserialize_example(record)
            image = example["image"]
            if image.shape != shape:
                image = imagenet.resize(image, shape)
            return image, example["label"]

        stored = imagenet.record_files(split)
        read = functools.partial(imagenet.read_records, stored)
        return imagenet.StoredImages(split.num_examples, read, decode)


def _list_images(folder):
    """Returns the paths of `<class>/*.JPEG`, in the clean test set's order."""
    paths = tf.io.gfile.glob(os.path.join(folder, "*", "*.JPEG"))
    return sorted(paths, key=lambda path: path.split("/")[::-1])
