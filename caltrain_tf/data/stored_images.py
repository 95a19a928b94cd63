"""Corrupted images that TensorFlow Datasets has stored."""

import tensorflow as tf

# Its names of data sets, and of corruptions where they differ from ours.
_NAMES = {
    "cifar10": "cifar10_corrupted",
    "imagenet": "imagenet2012_corrupted",
}
_CORRUPTIONS = {
    "cifar10": {
        "glass_blur": "frosted_glass_blur",
        "elastic_transform": "elastic",
    }
}


def stored_name(name, corruption):
    """Returns what TensorFlow Datasets calls a corruption.

    Args:
        name: Of the clean data set.
        corruption: The corruption.

    Example:
        >>> stored_name("cifar10", "elastic_transform")
        'elastic'
    """
    return _CORRUPTIONS.get(name, {}).get(corruption, corruption)


def find_corrupted(name, corruption, severity, data_dir=None):
    """Returns the builder of a corrupted set, or None where it is not stored.

    Args:
        name: Of the clean data set.
        corruption: The corruption.
        severity: 1 to 5.
        data_dir: The folder of TensorFlow Datasets.
    """
    if name not in _NAMES:
        return None
    import tensorflow_datasets as tfds

    config = f"{stored_name(name, corruption)}_{severity}"
    try:
        return tfds.core.read_only_builder.builder_from_files(
            f"{_NAMES[name]}/{config}", data_dir=data_dir
        )
    except tfds.core.DatasetNotFoundError:
        return None


class StoredImages:
    """Batches of the images of a builder's only split, as they are.

    Published images are cropped already; another size is resized.

    Args:
        builder: Of TensorFlow Datasets.
        image_shape: (height, width, channels) of the result.
    """

    def __init__(self, builder, image_shape):
        """See the class."""
        self._builder = builder
        self._image_shape = image_shape
        (self._split,) = builder.info.splits
        self.size = builder.info.splits[self._split].num_examples

    def eval_batches(self, batch_size, *, rows):
        """Returns a dataset of (images, labels, places).

        Args:
            batch_size: Of the global batch.
            rows: Those of each batch to return, all of them here.
        """
        if len(rows) != batch_size:
            raise ValueError(
                "Stored corrupted sets are read by one process. "
                f"Received: rows={rows} of {batch_size}"
            )
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
        dataset = dataset.map(example, num_parallel_calls=tf.data.AUTOTUNE)
        return dataset.batch(batch_size, drop_remainder=True)
