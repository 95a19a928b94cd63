"""A user's own images, for evaluation."""

import numpy as np
import tensorflow as tf

from caltrain_tf.data.finished import finished
from caltrain_tf.data.in_memory import InMemoryImages
from caltrain_tf.data.passes import BATCHES_AHEAD
from caltrain_tf.data.passes import Passes
from caltrain_tf.data.passes import transformed


class ArrayData:
    """Images and labels in memory, with the interface of `ImageData`.

    Args:
        name: How results call the data.
        splits: From `"calibration"` and `"test"` to pairs of uint8 images
            `(N, size, size, 3)` and class ids `(N,)`.
        preprocess: From uint8 images to what the model takes; by default
            float32 in [0, 1].

    Example:
        >>> import caltrain_tf as ct
        >>> images = np.zeros((4, 8, 8, 3), np.uint8)
        >>> data = ct.data.ArrayData("mine", {"test": (images, [0, 1, 0, 1])})
        >>> data.num_examples
        {'test': 4}
    """

    def __init__(self, name, splits, preprocess=None):
        """See the class."""
        self.name = name
        self._splits = {}
        for split, (images, labels) in splits.items():
            images, labels = np.asarray(images), np.asarray(labels)
            if images.dtype != np.uint8 or images.ndim != 4:
                raise ValueError(
                    "`splits` must hold uint8 images (N, size, size, 3). "
                    f"Received: dtype={images.dtype}, shape={images.shape} "
                    f"in {split!r}"
                )
            if labels.shape != images.shape[:1] or not len(labels):
                raise ValueError(
                    "`splits` must hold a class id for each image. Received: "
                    f"{len(images)} images and labels of shape {labels.shape} "
                    f"in {split!r}"
                )
            self._splits[split] = (images, labels)
        self.num_examples = {
            split: len(labels) for split, (_, labels) in self._splits.items()
        }
        self._preprocess = preprocess or _to_unit

    def eval_batches(self, split, batch_size, *, transform=None):
        """Returns (image, label, weight); see `ImageData.eval_batches`."""
        dataset = self._examples(split).eval_batches(
            batch_size, rows=range(batch_size)
        )
        if transform is not None:
            dataset = transformed(dataset, transform)
        return finished(dataset, self._finish(split), BATCHES_AHEAD)

    def eval_passes(self, split, batch_size, transforms, num_batches):
        """Returns passes over a split; see `ImageData.eval_passes`."""
        return Passes(
            self._examples(split),
            batch_size,
            transforms,
            num_batches,
            self._finish(split),
        )

    def _examples(self, split):
        if split not in self._splits:
            raise ValueError(
                f"`split` must be one of {tuple(self._splits)}. "
                f"Received: split={split!r}"
            )
        return InMemoryImages(*self._splits[split], max_shift=0, flip=False)

    def _finish(self, split):
        def finish(images, labels, places):
            weights = tf.cast(places < self.num_examples[split], tf.float32)
            return self._preprocess(images), labels, weights

        return finish


def _to_unit(images):
    # A graph may be optimised to this: a division would depend on that.
    return tf.cast(images, tf.float32) * (1 / 255)
