"""Corrupted test sets, either published or generated from the clean images."""

import functools
import os

import numpy as np
import tensorflow as tf

from caltrain_tf.data import corruptions, datasets, imagenet, pipeline
from caltrain_tf.data.corruptions.weather import installed_photographs

# Change this with the corrupted images, so that stored predictions for earlier
# images are discarded.
_REVISION = "revision 6"
# Where corrupted sets are published: how users call them, and their name in
# TensorFlow Datasets.
_PUBLISHED = {
    "cifar10": ("CIFAR-10-C", "cifar10_corrupted"),
    "cifar100": ("CIFAR-100-C", None),
    "imagenet": ("ImageNet-C", "imagenet2012_corrupted"),
}
_LABELS = "labels.npy"


def shifted_sets(
    data,
    *,
    corrupted_dir=None,
    data_dir=None,
    generated=False,
    seed=0,
    frost_dir=None,
    names=corruptions.NAMES,
    severities=corruptions.SEVERITIES,
):
    """Returns corrupted versions of a test split.

    These are the published sets in `corrupted_dir` or, without it, those of
    TensorFlow Datasets. A set that is missing is an error: generated images are
    similar to the published ones, but not the same, and results on both must
    not be mixed up. They are used with `generated=True`, and for data of which
    no corrupted sets are published: `digits` and your own images. Those of
    embeddings are in the folder of the embeddings.

    Args:
        data: The clean data, an `ImageData`.
        corrupted_dir: A folder of published sets as they are distributed:
            arrays `<corruption>.npy` and `labels.npy` (CIFAR-10-C, CIFAR-100-C)
            or images `<corruption>/<severity>/<class>/*.JPEG` (ImageNet-C).
        data_dir: The folder of TensorFlow Datasets.
        generated: Whether to generate the sets from the clean test images.
        seed: Seed of generated sets.
        frost_dir: Folder of frost photographs for them; see `corruptions.get`.
        names: The corruptions that must be there.
        severities: The severities that must be there.

    Returns:
        An object with `source` (a description), `is_generated`, `num_examples`
        and `batches(corruption, severity, batch_size, shard=(0, 1))`, which
        returns a dataset of (image, label, weight) as `ImageData.eval_batches`
        does, and `eval_input(corruption, severity, batch_size)`.
    """
    if corrupted_dir is not None and generated:
        raise ValueError(
            "`corrupted_dir` and `generated` exclude each other. "
            f"Received: corrupted_dir={corrupted_dir!r}, generated=True"
        )
    if data.is_embedded:
        corrupted_dir = corrupted_dir or data.name.removeprefix("npz:")
    elif generated or (corrupted_dir is None and data.name not in _PUBLISHED):
        return GeneratedSets(data, seed=seed, frost_dir=frost_dir)
    if data.is_embedded:
        sets = EmbeddedSets(data, corrupted_dir)
    elif corrupted_dir is None:
        sets = StoredSets(data, data_dir)
    elif tf.io.gfile.exists(os.path.join(corrupted_dir, _LABELS)):
        sets = PublishedArrays(data, corrupted_dir)
    else:
        sets = PublishedImages(data, corrupted_dir)
    for name in names:
        for severity in severities:
            sets.find(name, severity)
    return sets


class _Sets:
    """Sets that somebody else has made, in a folder.

    `find` returns where a set is, or raises; `_examples` reads it there.
    """

    is_generated = False
    # The path of a set in the folder, from its corruption and severity.
    _path = _hint = ""

    def __init__(self, data, folder):
        self._data = data
        self._folder = os.fspath(folder)
        self.source = f"{self._kind} of {os.path.abspath(self._folder)}"

    def find(self, corruption, severity):
        """Returns the path of a set, or raises."""
        name = self._path.format(corruption, severity)
        path = os.path.join(self._folder, name)
        if not tf.io.gfile.exists(path):
            raise FileNotFoundError(
                f"`corrupted_dir` must hold {name}{self._hint}. "
                f"Received: corrupted_dir={self._folder!r}"
            )
        return path

    def batches(self, corruption, severity, batch_size, shard=(0, 1)):
        """Returns the batches of one set."""
        found = self.find(corruption, severity)
        test = self._data.with_test(self._examples(found, severity))
        return test.eval_batches("test", batch_size, shard=shard)

    def eval_input(self, corruption, severity, batch_size):
        """Returns one set as `ImageData.eval_input` returns a split."""
        batches = functools.partial(self.batches, corruption, severity)
        return pipeline.host_input(batches, batch_size)


class GeneratedSets(_Sets):
    """Corrupted test sets that are generated from the clean test images."""

    is_generated = True

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


class EmbeddedSets(_Sets):
    """Embeddings of corrupted test sets, as `baselines/embed.py` writes them.

    `<corruption>_<severity>.npz` has the arrays `x` and `y`.
    """

    _kind, _path = "embeddings", "{}_{}.npz"
    _hint = ", which baselines/embed.py writes"

    def __init__(self, data, folder):
        super().__init__(data, folder)
        self.num_examples = data.num_examples["test"]

    def _examples(self, path, severity):
        arrays = datasets.read_npz(path)
        return pipeline.InMemoryImages(arrays["x"], arrays["y"])


class PublishedArrays(_Sets):
    """Corrupted test sets in the format of CIFAR-10-C and CIFAR-100-C.

    `<corruption>.npy` is uint8 `(5 N, height, width, 3)` with one severity
    after the other, and `labels.npy` is `(5 N,)`.
    """

    _kind, _path = "arrays", "{}.npy"

    def __init__(self, data, folder):
        super().__init__(data, folder)
        labels = np.load(os.path.join(self._folder, _LABELS))
        if labels.ndim != 1 or len(labels) % 5:
            raise ValueError(
                "`corrupted_dir` must hold labels of 5 severities, (5 N,). "
                f"Received: shape={labels.shape} in {self._folder}"
            )
        self._labels = labels.reshape(5, -1)
        self.num_examples = self._labels.shape[1]

    def _examples(self, path, severity):
        # With memory mapping, only the requested severity is read.
        images = np.load(path, mmap_mode="r")
        shape = self._labels.size, *self._data.image_shape
        if images.shape != shape or images.dtype != np.uint8:
            raise ValueError(
                f"{path} must be uint8 of shape {shape}. "
                f"Received: dtype={images.dtype}, shape={images.shape}"
            )
        images = images.reshape(*self._labels.shape, *shape[1:])
        return pipeline.InMemoryImages(
            images[severity - 1], self._labels[severity - 1]
        )


class PublishedImages(_Sets):
    """Corrupted test sets in the format of ImageNet-C.

    The classes are the sorted names of the folders, such as `n01440764`, of
    `<corruption>/<severity>/<class>/*.JPEG`. Images are not cropped; images of
    another size than the network's are resized.
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

    def _examples(self, folder, severity):
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


class StoredSets(_Sets):
    """Corrupted test sets stored by TensorFlow Datasets in `data_dir`.

    Images are not cropped; images of another size than the network's are
    resized.
    """

    def __init__(self, data, data_dir=None):
        self._data = data
        self._data_dir = data_dir
        self._published, self._name = _PUBLISHED[data.name]
        self.source = f"TensorFlow Datasets, {self._name}"

    def find(self, corruption, severity):
        """Returns the builder of a set."""
        where = "TensorFlow Datasets has no such set"
        if self._name is not None:
            tfds = datasets.import_tfds()
            stored = stored_name(self._data.name, corruption)
            name = f"{self._name}/{stored}_{severity}"
            try:
                builder = tfds.core.read_only_builder.builder_from_files(
                    name, data_dir=self._data_dir
                )
                # All sets have the same number.
                self.num_examples = builder.info.splits.total_num_examples
                return builder
            except tfds.core.DatasetNotFoundError:
                folder = self._data_dir or "~/tensorflow_datasets"
                where = f"There is no {name} in {folder}"
        raise FileNotFoundError(
            f"{corruption!r} of severity {severity} of {self._data.name!r} is "
            f"missing. {where}. Pass the folder of {self._published} as "
            "it is distributed as `corrupted_dir`, or use images that are "
            "generated from the clean test set: `generated=True`, "
            "`--generated` on the command line."
        )

    def _examples(self, builder, severity):
        (split,) = builder.info.splits.values()
        shape = self._data.image_shape

        def decode(record):
            example = builder.info.features.deserialize_example(record)
            image = example["image"]
            if image.shape != shape:
                image = imagenet.resize(image, shape)
            return image, example["label"]

        files = imagenet.record_files(split)
        read = functools.partial(imagenet.read_records, files)
        return imagenet.StoredImages(split.num_examples, read, decode)


def stored_name(name, corruption):
    """Returns the name of a corruption in TensorFlow Datasets."""
    others = {
        "glass_blur": "frosted_glass_blur",
        "elastic_transform": "elastic",
    }
    return (
        others.get(corruption, corruption) if name == "cifar10" else corruption
    )


def _list_images(folder):
    """Returns the paths of `<class>/*.JPEG`, sorted by the images' names.

    In this order, that of the clean test set, classes are mixed.
    """
    paths = tf.io.gfile.glob(os.path.join(folder, "*", "*.JPEG"))
    return sorted(paths, key=lambda path: path.split("/")[::-1])
