"""Where corrupted test sets come from: files, or made from clean images."""

import numpy as np

from caltrain_tf.data import corruptions
from caltrain_tf.data.corruptions.weather import installed_photographs
from caltrain_tf.data.stored_images import find_corrupted
from caltrain_tf.data.stored_sets import PublishedArrays
from caltrain_tf.data.stored_sets import StoredSets

# To be changed with the corrupted images: predictions of others are not kept.
_REVISION = "revision 4"


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
        `batches(corruption, severity, batch_size)`, which returns an iterable
        of (image, label, weight) as `ImageData.eval_batches` does. Where sets
        need not be opened one by one, `walk(shifts, batch_size, num_batches)`
        goes over the first batches of each pair of a corruption and a severity,
        one set after the other.
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
        photographs = frost_dir or installed_photographs()
        frost = "photographs" if photographs else "a generated texture"
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
        passes = self._data.eval_passes(
            "test", batch_size, transforms, num_batches
        )
        for (name, _), transform in zip(shifts, transforms, strict=True):
            if name == "frost":
                # What is wrong with the photographs is an error now, not in the
                # middle of the walk.
                transform(np.zeros((1, *passes.image_shape), np.uint8), [0])
        return passes
