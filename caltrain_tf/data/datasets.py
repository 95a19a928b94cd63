"""Looks up data sets by name and parses their splits."""

import dataclasses
import functools
import itertools
import re
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from caltrain_tf.data import sources
from caltrain_tf.data.pipeline import ImageData

_SPLIT_SYNTAX = re.compile(r"(\w+)(?:\[(-?[\d_]+%?)?:(-?[\d_]+%?)?\])?")


def get(
    name,
    data_dir=None,
    *,
    train_split=None,
    calibration_split=None,
    test_split=None,
    image_size=None,
    augment=True,
    dtype="float32",
):
    """Returns the data set `name`.

    | name | train | calibration | test |
    |---|---|---|---|
    | `cifar10`, `cifar100` | 45,000 | 5,000 | 10,000 |
    | `imagenet` | 1,255,544 | 25,623 | 50,000 |
    | `digits`, embedded | 800 | 397 | 600 |
    | another of TensorFlow Datasets | 90% of `train` | 10% | `test` |
    | `folder:PATH` | 90% of `PATH/train` | 10% | `PATH/test` |
    | `npz:PATH`, `PATH.npz` | 90% of `x_train` | 10% | `x_test` |

    Your own data can be:

    - Any image classification data set of TensorFlow Datasets. Without a
      `test` split, `validation` is used; without either, the data are divided
      into 80%, 10% and 10%. JPEG images of different sizes are cropped in the
      same way as those of `imagenet`.
    - A folder of images, `PATH/train/<class>/*` and `PATH/test/<class>/*`, as
      `keras.utils.image_dataset_from_directory` reads them; or
      `PATH/<class>/*`, which is divided into 80%, 10% and 10%. Images are
      resized to `image_size` and kept in memory.
    - An `.npz` file with the arrays `x_train`, `y_train`, `x_test` and
      `y_test`, like the files of `keras.datasets`; or with `images` and
      `labels`, which are divided into 80%, 10% and 10%. Images are uint8
      `(N, height, width, 3)`, without the last axis if they are grey; labels
      are class ids `(N,)`.

    Images from a folder or a file are put into a fixed order that spreads the
    classes evenly. Pixels in [0, 1] are normalised with mean 0.5 and standard
    deviation 0.25; training images are shifted by up to an eighth of their size
    and mirrored at random.

    Args:
        name: One of the names above.
        data_dir: The folder of TensorFlow Datasets; the default folder of
            TensorFlow Datasets when not given. Nothing is ever downloaded.
        train_split: Another training split, in the syntax of TensorFlow
            Datasets, such as `"train[:10000]"`.
        calibration_split: Another calibration split.
        test_split: Another test split. No two splits may overlap.
        image_size: Height and width of the images; 224 by default for
            `imagenet`. Required if the stored images have different sizes.
        augment: Whether training images are shifted and mirrored. It must be
            true for JPEG images that are cropped.
        dtype: Data type of the images: `"float32"`, `"bfloat16"`, or `"uint8"`
            for images that are not normalised; see `ImageData`.

    Returns:
        An `ImageData`.

    Example:
        >>> import caltrain_tf as ct
        >>> digits = ct.data.get("digits")
        >>> digits.num_examples
        {'train': 800, 'calibration': 397, 'test': 600}
        >>> images, labels = next(iter(digits.train_batches(128, epoch=3)))
        >>> images.shape, labels.shape
        (TensorShape([128, 32, 32, 3]), TensorShape([128]))
    """
    kind, _, path = str(name).partition(":")
    if name == "digits":
        source = sources.digits()
    elif kind == "folder":
        source = sources.folder(path, image_size)
    elif kind == "npz":
        source = sources.npz(path)
    elif str(name).endswith(".npz"):
        source = sources.npz(str(name))
    else:
        source = sources.tensorflow_datasets(name, data_dir, image_size)
    spec = source.spec
    if image_size not in (None, spec.image_shape[0]):
        raise ValueError(
            "`image_size` must be at least 1, and is for 'imagenet', folders "
            "and other images of different sizes only. "
            f"Received: image_size={image_size!r} for {name!r}"
        )
    if not augment:
        if source.is_cropped:
            raise ValueError(
                f"`augment` must be true for {name!r}, whose training images "
                f"are random crops. Received: augment={augment!r}"
            )
        spec = dataclasses.replace(spec, max_shift=0, flip=False)
    asked = (train_split, calibration_split, test_split)
    parts = {
        split: parse_split(other or default, source.sizes)
        for (split, default), other in zip(
            spec.splits.items(), asked, strict=True
        )
    }
    _check_disjoint(parts)
    load = functools.cache(functools.partial(source.load, spec))
    return ImageData(name, spec, load, parts, dtype)


class ArrayData(ImageData):
    """Your own images in memory, for evaluation, with your own preprocessing.

    Args:
        name: Name of the data set in the results.
        splits: Dictionary from `"calibration"` and `"test"` to pairs of uint8
            images `(N, size, size, 3)` and class ids `(N,)`.
        preprocess: Function from uint8 images to the inputs of the model; by
            default they become float32 in [0, 1].

    Example:
        >>> import caltrain_tf as ct
        >>> images = np.zeros((4, 8, 8, 3), np.uint8)
        >>> data = ct.data.ArrayData("mine", {"test": (images, [0, 1, 0, 1])})
        >>> data.num_examples
        {'test': 4}
    """

    def __init__(self, name, splits, preprocess=None):
        arrays = {}
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
            arrays[split] = images, labels
        source = sources.of_arrays(arrays, sources.own_spec)
        parts = {
            split: Part(split, 0, size) for split, size in source.sizes.items()
        }
        load = functools.cache(functools.partial(source.load, source.spec))
        super().__init__(name, source.spec, load, parts)
        self._preprocess = preprocess or _to_unit

    def _finish(self, images):
        return self._preprocess(images)


class Part(NamedTuple):
    """The examples from `start` up to but not including `stop` of a split."""

    stored: str
    start: int
    stop: int

    @property
    def size(self):
        """The number of examples."""
        return self.stop - self.start

    def __str__(self):
        """Returns the part in the syntax of `parse_split`."""
        return f"{self.stored}[{self.start}:{self.stop}]"


def parse_split(split, sizes):
    """Parses a split in the syntax of TensorFlow Datasets.

    Percentages are rounded to the nearest example; `sizes` has the number of
    examples of each stored split.

    Example:
        >>> parse_split("train[90%:]", {"train": 50000})
        Part(stored='train', start=45000, stop=50000)
    """
    match = _SPLIT_SYNTAX.fullmatch(split) if isinstance(split, str) else None
    if match is None:
        raise ValueError(
            "A split must be such as 'train', 'train[:10000]' or "
            f"'train[90%:]'. Received: {split!r}"
        )
    stored, start, stop = match.groups()
    if stored not in sizes:
        raise ValueError(
            f"A split must be of one of {sorted(sizes)}. Received: {split!r}"
        )
    size = sizes[stored]

    def position(text):
        if text.endswith("%"):
            place = round(int(text[:-1]) * size / 100)
        else:
            place = int(text)
        return place + size if place < 0 else place

    part = Part(
        stored,
        0 if start is None else position(start),
        size if stop is None else position(stop),
    )
    if not 0 <= part.start < part.stop <= size:
        raise ValueError(
            f"A split must hold examples of the {size} of {stored!r}. "
            f"Received: {split!r}, which is {part}"
        )
    return part


def _check_disjoint(parts):
    """Raises if two of the named parts share an example."""
    for (first, one), (second, other) in itertools.combinations(
        parts.items(), 2
    ):
        is_apart = one.stop <= other.start or other.stop <= one.start
        if one.stored == other.stored and not is_apart:
            raise ValueError(
                f"The splits `{first}` and `{second}` must share no example. "
                f"Received: {first}={one}, {second}={other}"
            )


def _to_unit(images):
    # Not a division: graph optimisers may turn it into a multiplication, which
    # rounds differently.
    return tf.cast(images, tf.float32) * (1 / 255)
