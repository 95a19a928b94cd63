"""Where corrupted test sets come from: files, or made from clean images."""

import os

import numpy as np
import tensorflow as tf

from caltrain_tf.data import corruptions
from caltrain_tf.data.image_data import ImageData
from caltrain_tf.data.in_memory import InMemoryImages
from caltrain_tf.data.parts import Part
from caltrain_tf.data.specs import SPECS
from caltrain_tf.data.stored_images import StoredImages
from caltrain_tf.data.stored_images import find_corrupted

_NUM_SEVERITIES = len(corruptions.SEVERITIES)
# To be changed with the corrupted images: predictions of others are not kept.
_REVISION = "revision 3"


def shifted_sets(
    data, *, corrupted_dir=None, data_dir=None, seed=0, frost_dir=None
):
    """Returns the best corrupted versions of a test split that there are.

    Those of `corrupted_dir`, else those of TensorFlow Datasets
    (`cifar10_corrupted`, `imagenet2012_corrupted`) if all 75 are there, else
    they are made on the fly.

    Args:
        data: The clean data, an `ImageData`.
        corrupted_dir: A folder of the published arrays, `<corruption>.npy` and
            `labels.npy`, as CIFAR-10-C and CIFAR-100-C are distributed.
        data_dir: The folder of TensorFlow Datasets.
        seed: Of corruptions that are made on the fly.
        frost_dir: Their frost photographs; see `corruptions.get`.

    Returns:
        An object with `source`, a description, `num_examples`, and
        `batches(corruption, severity, batch_size)`, which returns a dataset
        of (image, label, weight) as `ImageData.eval_batches` does. For several
        sets, `walk(shifts, batch_size, num_batches)` goes over the first
        batches of each pair of a corruption and a severity, one set after the
        other.
    """
    if corrupted_dir is not None:
        return PublishedArrays(data, corrupted_dir)
    # All or none: one alone is what the data set has without a configuration.
    if all(
        find_corrupted(data.name, name, severity, data_dir) is not None
        for name in corruptions.NAMES
        for severity in corruptions.SEVERITIES
    ):
        return StoredSets(data, data_dir)
    return GeneratedSets(data, seed=seed, frost_dir=frost_dir)


class GeneratedSets:
    """Corrupted versions that are made of the clean test images.

    Args:
        data: An object with `eval_batches`, as of `ImageData`, and with
            `num_examples["test"]`.
        seed: Of the random numbers.
        frost_dir: As in `corruptions.get`.
    """

    def __init__(self, data, *, seed=0, frost_dir=None):
        """See the class."""
        self._data = data
        self._options = {"seed": seed, "frost_dir": frost_dir}
        frost = "a generated texture" if frost_dir is None else "photographs"
        self.source = (
            f"made on the fly, seed {seed}, frost of {frost}, {_REVISION}"
        )
        self.num_examples = data.num_examples["test"]

    def batches(self, corruption, severity, batch_size):
        """Returns the batches of one set."""
        transform = corruptions.get(corruption, severity, **self._options)
        return self._data.eval_batches("test", batch_size, transform=transform)

    def walk(self, shifts, batch_size, num_batches):
        """Returns the first batches of several sets; see `shifted_sets`."""
        transforms = [
            corruptions.get(*shift, **self._options) for shift in shifts
        ]
        return self._data.eval_passes(
            "test", batch_size, transforms, num_batches
        )


class _SetBySet:
    """For sets that are stored one by one."""

    def walk(self, shifts, batch_size, num_batches):
        """Returns the first batches of several sets; see `shifted_sets`."""
        for shift in shifts:
            yield from self.batches(*shift, batch_size).take(num_batches)


class PublishedArrays(_SetBySet):
    """The arrays as CIFAR-10-C and CIFAR-100-C are distributed.

    Args:
        data: The clean `ImageData`, for the way to normalise.
        folder: Of `<corruption>.npy`, uint8 `(5 N, height, width, 3)`, the
            severities one after the other, and `labels.npy`, `(5 N,)`.
    """

    def __init__(self, data, folder):
        """See the class."""
        self._data = data
        self._folder = os.fspath(folder)
        self._labels = self._load("labels")
        if self._labels.ndim != 1 or len(self._labels) % _NUM_SEVERITIES:
            raise ValueError(
                "`corrupted_dir` must hold labels of 5 severities, (5 N,). "
                f"Received: shape={self._labels.shape} in {self._folder}"
            )
        self.num_examples = len(self._labels) // _NUM_SEVERITIES
        self.source = f"arrays of {os.path.abspath(self._folder)}"

    def batches(self, corruption, severity, batch_size):
        """Returns the batches of one set."""
        images = self._load(corruption)
        expected = (len(self._labels), *self._data.image_shape)
        if images.shape != expected or images.dtype != np.uint8:
            raise ValueError(
                f"`{corruption}.npy` must be uint8 of shape {expected}. "
                f"Received: dtype={images.dtype}, shape={images.shape}"
            )
        count = self.num_examples
        chosen = slice((severity - 1) * count, severity * count)
        spec = SPECS[self._data.name]
        examples = InMemoryImages(
            images[chosen],
            np.asarray(self._labels[chosen]),
            max_shift=spec.max_shift,
            flip=spec.flip,
        )
        return _as_data(self._data, examples, count).eval_batches(
            "test", batch_size
        )

    def _load(self, name):
        path = os.path.join(self._folder, f"{name}.npy")
        if not os.path.exists(path):
            raise FileNotFoundError(
                f"`corrupted_dir` must hold {name}.npy, as CIFAR-10-C and "
                "CIFAR-100-C are distributed. "
                f"Received: corrupted_dir={self._folder!r}"
            )
        # Only the severity that is asked for is read.
        return np.load(path, mmap_mode="r", allow_pickle=False)


class StoredSets(_SetBySet):
    """The corrupted sets of TensorFlow Datasets.

    Args:
        data: The clean `ImageData`.
        data_dir: The folder of TensorFlow Datasets.
    """

    def __init__(self, data, data_dir=None):
        """See the class."""
        self._data = data
        self._data_dir = data_dir
        first = self._builder("brightness", 1)
        self.source = f"TensorFlow Datasets, {first.info.name}"
        self.num_examples = StoredImages(first, data.image_shape).size

    def batches(self, corruption, severity, batch_size):
        """Returns the batches of one set."""
        builder = self._builder(corruption, severity)
        examples = StoredImages(builder, self._data.image_shape)
        return _as_data(self._data, examples, examples.size).eval_batches(
            "test", batch_size
        )

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


def _as_data(data, examples, count):
    """Returns examples as the test split of data like the clean ones."""
    dtype = tf.as_dtype(data.eval_batches("test", 1).element_spec[0].dtype)
    part = Part("test", 0, count)
    return ImageData(
        data.name,
        SPECS[data.name],
        lambda part: examples,
        {"test": part},
        dtype.name,
    )
