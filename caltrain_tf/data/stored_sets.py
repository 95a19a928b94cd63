"""Corrupted test sets that are stored, in files or in TensorFlow Datasets."""

import os

import numpy as np
import tensorflow as tf

from caltrain_tf.data import corruptions
from caltrain_tf.data.image_data import ImageData
from caltrain_tf.data.parts import Part
from caltrain_tf.data.specs import SPECS
from caltrain_tf.data.stored_images import StoredImages
from caltrain_tf.data.stored_images import find_corrupted

_NUM_SEVERITIES = len(corruptions.SEVERITIES)


class PublishedArrays:
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
        labels = self._load("labels")
        if labels.ndim != 1 or len(labels) % _NUM_SEVERITIES:
            raise ValueError(
                "`corrupted_dir` must hold labels of 5 severities, (5 N,). "
                f"Received: shape={labels.shape} in {self._folder}"
            )
        labels = labels.reshape(_NUM_SEVERITIES, -1)
        if (labels != labels[0]).any():
            raise ValueError(
                "`corrupted_dir` must hold the same labels for each severity. "
                f"Received: other ones in {self._folder}"
            )
        self.num_examples = labels.shape[1]
        self._examples = _as_data(
            data, _Places(labels[0], data.image_shape), self.num_examples
        )
        self.source = f"arrays of {os.path.abspath(self._folder)}"

    def batches(self, corruption, severity, batch_size):
        """Returns the batches of one set."""
        num_batches = -(-self.num_examples // batch_size)
        return self.walk([(corruption, severity)], batch_size, num_batches)

    def walk(self, shifts, batch_size, num_batches):
        """Returns the first batches of several sets; see `shifted_sets`."""
        readers = [self._reader(*shift) for shift in shifts]
        return self._examples.eval_passes(
            "test", batch_size, readers, num_batches
        )

    def _reader(self, corruption, severity):
        images = self._load(corruption)
        count = self.num_examples
        expected = (_NUM_SEVERITIES * count, *self._data.image_shape)
        if images.shape != expected or images.dtype != np.uint8:
            raise ValueError(
                f"`{corruption}.npy` must be uint8 of shape {expected}. "
                f"Received: dtype={images.dtype}, shape={images.shape}"
            )

        def read(_, places):
            rows = np.minimum(places, count - 1) + (severity - 1) * count
            return images[rows]

        return read

    def _load(self, name):
        path = os.path.join(self._folder, f"{name}.npy")
        if not os.path.exists(path):
            raise FileNotFoundError(
                f"`corrupted_dir` must hold {name}.npy, as CIFAR-10-C and "
                "CIFAR-100-C are distributed. "
                f"Received: corrupted_dir={self._folder!r}"
            )
        # Only what is asked for is read.
        return np.load(path, mmap_mode="r", allow_pickle=False)


class StoredSets:
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


class _Places:
    """Labels and places of images that are yet to be read: black ones."""

    def __init__(self, labels, image_shape):
        self._image_shape = image_shape
        self._labels = labels.astype(np.int32)

    def array_batches(self, batch_size):
        shape = (batch_size, *self._image_shape)
        images = np.broadcast_to(np.uint8(0), shape)
        for start in range(0, len(self._labels), batch_size):
            places = np.arange(start, start + batch_size)
            rows = np.minimum(places, len(self._labels) - 1)
            yield images, self._labels[rows], places


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
