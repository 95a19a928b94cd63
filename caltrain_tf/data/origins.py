"""Where examples come from: TensorFlow Datasets, or the embedded digits.

An origin knows the number of examples of each stored split (`sizes`) and
loads a `Part` of one when it is asked to (`load`).
"""

import numpy as np
import tensorflow as tf

from caltrain_tf.data.in_memory import InMemoryImages
from caltrain_tf.data.jpeg_records import File
from caltrain_tf.data.jpeg_records import JpegRecords

# Of the embedded digits, the last fifth.
_NUM_TEST_DIGITS = 360


class EmbeddedDigits:
    """The 1,797 handwritten digits of scikit-learn, 8 x 8 pixels.

    They are enlarged to the spec's shape. The order is shuffled within each
    class, and the classes are spread evenly over it: every range of it has
    the classes in about the same shares.
    """

    def __init__(self, spec):
        """Takes the data set's `Spec`."""
        from sklearn.datasets import load_digits

        self._spec = spec
        pixels, labels = load_digits(return_X_y=True)
        # The one generator whose numbers NumPy promises never to change.
        shuffled = np.random.RandomState(0).permutation(len(labels))
        rank = np.empty(len(labels))
        for label in range(spec.num_classes):
            members = shuffled[labels[shuffled] == label]
            rank[members] = (np.arange(len(members)) + 0.5) / len(members)
        order = np.lexsort((labels, rank))
        self._labels = labels[order]
        self._pixels = pixels[order].reshape(-1, 8, 8, 1)
        num_train = len(labels) - _NUM_TEST_DIGITS
        self.sizes = {"train": num_train, "test": _NUM_TEST_DIGITS}

    def load(self, part):
        """Returns the images of a `Part`."""
        offset = 0 if part.stored == "train" else self.sizes["train"]
        chosen = slice(offset + part.start, offset + part.stop)
        with tf.device("CPU:0"):
            images = tf.image.resize(
                self._pixels[chosen] * (255 / 16), self._spec.image_shape[:2]
            )
            images = tf.cast(tf.round(images), tf.uint8)
            images = tf.repeat(images, self._spec.image_shape[2], axis=-1)
        return InMemoryImages(
            images,
            self._labels[chosen],
            max_shift=self._spec.max_shift,
            flip=self._spec.flip,
        )


class _TFDSOrigin:
    """What the origins that read TensorFlow Datasets' files share."""

    def __init__(self, name, spec, data_dir):
        self._spec = spec
        self._builder = _find(name, spec.tfds_name, data_dir)
        self.sizes = {
            split: info.num_examples
            for split, info in self._builder.info.splits.items()
        }


class TFDSImages(_TFDSOrigin):
    """A small data set of TensorFlow Datasets."""

    def load(self, part):
        """Returns the images of a `Part`, decoded."""
        with tf.device("CPU:0"):
            # Files are read in order unless asked otherwise.
            examples = self._builder.as_dataset(split=str(part), batch_size=-1)
        return InMemoryImages(
            examples["image"],
            examples["label"],
            max_shift=self._spec.max_shift,
            flip=self._spec.flip,
        )


class TFDSJpegs(_TFDSOrigin):
    """A large data set of TensorFlow Datasets that stays in its files."""

    def load(self, part):
        """Returns the files of a `Part`."""
        import tensorflow_datasets as tfds

        decoders = {"image": tfds.decode.SkipDecoding()}
        features = self._builder.info.features

        def parse(record):
            example = features.deserialize_example(record, decoders=decoders)
            return example["image"], example["label"]

        split = self._builder.info.splits[str(part)]
        files = [
            File(str(file.filename), file.skip, file.take)
            for file in split.file_instructions
        ]
        return JpegRecords(files, parse, size=self._spec.image_shape[0])


def _find(name, tfds_name, data_dir):
    """Returns the builder of data that are there; nothing is downloaded."""
    import tensorflow_datasets as tfds

    try:
        return tfds.core.read_only_builder.builder_from_files(
            tfds_name, data_dir=data_dir
        )
    except tfds.core.DatasetNotFoundError as error:
        where = data_dir or "~/tensorflow_datasets"
        raise FileNotFoundError(
            f"No data of {name!r} in {where}. To get them, run `tfds build "
            f"{tfds_name} --data_dir={where}`, and pass that folder as "
            "`data_dir`. The data set 'digits' is embedded and "
            f"needs none. Received: data_dir={data_dir!r}"
        ) from error
