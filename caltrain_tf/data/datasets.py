"""Data sets by name: where their examples come from, and their splits."""

import dataclasses
import functools
import os
import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from caltrain_tf import checks, files
from caltrain_tf.data import imagenet
from caltrain_tf.data.pipeline import ImageData, InMemoryImages


@dataclasses.dataclass(frozen=True)
class Spec:
    """How a data set is split, normalised and augmented."""

    num_classes: int
    image_shape: tuple[int, ...]  # (height, width, channels), or (size,).
    # "train", "calibration" and "test", in the syntax of TensorFlow Datasets.
    splits: Mapping[str, str]
    # Of each channel, for pixels in [0, 1].
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.25, 0.25, 0.25)
    # Training images are padded by so many pixels, cropped and mirrored.
    max_shift: int = 0
    flip: bool = True


def _splits(end, test="test"):
    # Temperatures and checkpoints must not be selected on the test split, so
    # the calibration split is the end of the original training set.
    train, calibration = f"train[:{end}]", f"train[{end}:]"
    return {"train": train, "calibration": calibration, "test": test}


_CIFAR10 = Spec(
    num_classes=10,
    image_shape=(32, 32, 3),
    splits=_splits("90%"),
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
    max_shift=2,
)
SPECS = {
    "cifar10": _CIFAR10,
    "cifar100": dataclasses.replace(
        _CIFAR10,
        num_classes=100,
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
    ),
    "imagenet": Spec(
        num_classes=1000,
        image_shape=(224, 224, 3),
        # 25,623 images for calibration. The labels of "test" are not public.
        splits=_splits("98%", "validation"),
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
    ),
    "digits": Spec(
        num_classes=10,
        image_shape=(32, 32, 3),
        splits=_splits("800"),
        mean=(0.3049, 0.3049, 0.3049),
        std=(0.3224, 0.3224, 0.3224),
        max_shift=2,
        flip=False,
    ),
}


def get(
    name,
    data_dir=None,
    *,
    train_split=None,
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
    | `npz:FOLDER` | `train.npz` | `calibration.npz` | `test.npz` |

    - Without a `test` split, `validation` is used; without either, `train` is
      divided into 80%, 10% and 10%. Images in JPEG of different sizes are
      cropped like those of `imagenet`.
    - Folders have `<class>/*`, in `PATH/train` and `PATH/test` or in `PATH`
      alone. Images are resized to `image_size` and kept in memory.
    - Files have `x_train`, `y_train`, `x_test` and `y_test`, or `images` and
      `labels`: uint8 images `(N, height, width, 3)` or `(N, height, width)`, or
      float32 embeddings `(N, size)`; and class ids `(N,)`.
    - Folders of `baselines/embed.py` have a file of `x` and `y` for each split.

    Examples of folders and files are put into a fixed order that spreads the
    classes evenly. Your own images are normalised with mean 0.5 and standard
    deviation 0.25, shifted by up to an eighth of their size and mirrored.

    Args:
        name: One of the names above.
        data_dir: The folder of TensorFlow Datasets. Nothing is ever downloaded.
        train_split: Another training split, such as `"train[:10000]"`, which
            may not overlap the others.
        image_size: Height and width of images that are stored in different
            sizes; 224 by default for `imagenet`.
        augment: Whether training images are shifted and mirrored. It must be
            true for JPEG images that are cropped.
        dtype: `"float32"`, or `"uint8"` for pixels that are not normalised.

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
        spec, sizes, read = _digits()
    elif kind == "folder":
        spec, sizes, read = _folder(path, image_size)
    elif kind == "npz" or str(name).endswith(".npz"):
        spec, sizes, read = _npz(str(name).removeprefix("npz:"))
    else:
        spec, sizes, read = _stored(name, data_dir, image_size, augment)
    if image_size not in (None, spec.image_shape[0]):
        raise ValueError(
            "`image_size` must be at least 1, and is for 'imagenet', folders "
            "and other images of different sizes only. "
            f"Received: image_size={image_size!r} for {name!r}"
        )
    splits = {**spec.splits, "train": train_split or spec.splits["train"]}
    parts = {split: parse_split(text, sizes) for split, text in splits.items()}
    train = parts["train"]
    for other in (parts["calibration"], parts["test"]):
        gap = max(train.start, other.start) - min(train.stop, other.stop)
        if train.stored == other.stored and gap < 0:
            raise ValueError(
                "`train_split` must share no example with the other splits, "
                f"such as {other}. Received: train_split={train}"
            )
    augmentation = (spec.max_shift, spec.flip) if augment else ()

    @functools.cache
    def load(part):
        examples = read(part)
        if isinstance(examples, imagenet.JpegRecords):
            return examples
        return InMemoryImages(*examples, *augmentation)

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
        arrays = {
            split: _checked(images, labels, f"`splits[{split!r}]`")
            for split, (images, labels) in splits.items()
        }
        spec, sizes, read = _in_memory(arrays)
        parts = {split: Part(split, 0, size) for split, size in sizes.items()}
        load = functools.cache(lambda part: InMemoryImages(*read(part)))
        super().__init__(name, spec, load, parts)
        self._finish = preprocess or functools.partial(
            tf.image.convert_image_dtype, dtype=tf.float32
        )


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
        """Returns it in the syntax of `parse_split`."""
        return f"{self.stored}[{self.start}:{self.stop}]"


def parse_split(split, sizes):
    """Parses a split in the syntax of TensorFlow Datasets.

    Example:
        >>> parse_split("train[90%:]", {"train": 50000})
        Part(stored='train', start=45000, stop=50000)
    """
    match = re.fullmatch(r"(\w+)(?:\[(-?[\d_]+%?)?:(-?[\d_]+%?)?\])?", split)
    stored, *ends = match.groups() if match else (None, None, None)
    size = sizes.get(stored, 0)

    def position(text, default):
        if text is None:
            return default
        place = int(text.removesuffix("%"))
        if text.endswith("%"):
            place = round(place * size / 100)
        return place + size if place < 0 else place

    part = Part(stored, *map(position, ends, (0, size)))
    if not 0 <= part.start < part.stop <= size:
        raise ValueError(
            "A split must be such as 'train', 'train[:10000]' or 'train[90%:]' "
            f"and hold examples of {dict(sizes)}. Received: {split!r}"
        )
    return part


# The splits of your own data; the training set comes first.
_STORED = ("train", "calibration", "validation", "test")

# The sources below return the `Spec` of a data set, the sizes of its stored
# splits, and a function from a `Part` to images and labels or `JpegRecords`.


def _in_memory(arrays, spec=None):
    sizes = {split: len(labels) for split, (_, labels) in arrays.items()}
    if spec is None:
        images = next(iter(arrays.values()))[0]
        largest = max(int(labels.max()) for _, labels in arrays.values())
        spec = _own_spec(1 + largest, images.shape[1:], sizes)

    def read(part):
        return [x[part.start : part.stop] for x in arrays[part.stored]]

    return spec, sizes, read


def _own_spec(num_classes, shape, sizes):
    """Returns the `Spec` of data that are not in `SPECS`."""
    test = next((s for s in ("test", "validation") if s in sizes), None)
    if "train" in sizes and test is not None:
        splits = _splits("90%", test)
        if "calibration" in sizes:
            splits |= {"train": "train", "calibration": "calibration"}
    else:
        only = "train" if "train" in sizes else next(iter(sizes))
        ends = {"train": ":80%", "calibration": "80%:90%", "test": "90%:"}
        splits = {split: f"{only}[{end}]" for split, end in ends.items()}
    # Embeddings are neither shifted nor mirrored.
    moves = {"max_shift": min(shape[:2]) // 8} if shape[1:] else {"flip": False}
    return Spec(num_classes, shape, splits, **moves)


def _spread_classes(images, labels):
    """Puts examples into a fixed order that mixes the classes evenly."""
    # NumPy guarantees that the numbers of this generator never change.
    shuffled = np.random.RandomState(0).permutation(len(labels))
    rank = np.empty(len(labels))
    for label in np.unique(labels):
        members = shuffled[labels[shuffled] == label]
        rank[members] = (np.arange(len(members)) + 0.5) / len(members)
    order = np.lexsort((labels, rank))
    return images[order], labels[order]


def _checked(images, labels, where):
    """Returns uint8 images (N, height, width, 3) and class ids (N,)."""
    images, labels = np.asarray(images), np.asarray(labels)
    is_embedding = images.ndim == 2 and images.dtype == np.float32
    if images.ndim == 3:
        images = images[..., np.newaxis]
    # Labels of `keras.datasets`, such as CIFAR, have shape (N, 1).
    if labels.shape == (len(images), 1):
        labels = labels[:, 0]
    is_image = images.dtype == np.uint8 and images.shape[3:] in ((1,), (3,))
    if (
        not (is_image or is_embedding)
        or labels.shape != images.shape[:1]
        or not len(labels)
        or labels.dtype.kind not in "iu"
        or labels.min() < 0
    ):
        raise ValueError(
            f"{where} must be uint8 images (N, height, width, 3), or float32 "
            "embeddings (N, size), and class ids (N,). Received: "
            f"{images.dtype} {images.shape}, {labels.dtype} {labels.shape}"
        )
    if is_image:
        images = np.broadcast_to(images, (*images.shape[:-1], 3))
    return images, labels.astype(int)


def _digits():
    """Returns the 1,797 8 x 8 digits of scikit-learn, enlarged."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    with tf.device("CPU:0"):
        images = pixels.reshape(-1, 8, 8, 1) * (255 / 16)
        images = tf.cast(tf.round(tf.image.resize(images, (32, 32))), tf.uint8)
        images = tf.repeat(images, 3, axis=-1).numpy()
    images, labels = _spread_classes(images, labels)
    # A third for testing, because the ECE of fewer images is mostly noise.
    parts = {"train": slice(None, -600), "test": slice(-600, None)}
    arrays = {split: (images[at], labels[at]) for split, at in parts.items()}
    return _in_memory(arrays, SPECS["digits"])


def _folder(path, image_size):
    """Returns images from one folder per class, resized and in memory."""
    import keras

    if not os.path.isdir(path):
        raise FileNotFoundError(
            "`name` must be 'folder:' and a folder of images by class. "
            f"Received: name='folder:{path}'"
        )
    _require_size(image_size, f"folder:{path}")
    folders = {split: os.path.join(path, split) for split in _STORED}
    if not os.path.isdir(folders["train"]):
        folders = {"train": path}
    folders = {x: folders[x] for x in folders if os.path.isdir(folders[x])}
    arrays, classes = {}, None
    for split, folder in folders.items():
        dataset = keras.utils.image_dataset_from_directory(
            folder,
            class_names=classes,  # Those of the training set, the first.
            batch_size=None,
            image_size=(image_size, image_size),
            shuffle=False,
            verbose=False,
        )
        classes = dataset.class_names
        images, labels = zip(*dataset.as_numpy_iterator(), strict=True)
        images = np.clip(np.round(np.stack(images)), 0, 255).astype(np.uint8)
        arrays[split] = _spread_classes(images, np.array(labels))
    return _in_memory(arrays)


def _require_size(image_size, name):
    if image_size is None:
        raise ValueError(
            f"`image_size` must be given for {name!r}, whose images are of "
            "different sizes. Received: image_size=None"
        )


def _npz(path):
    """Returns the arrays of an `.npz` file, or of a folder of them."""
    path = files.as_path(path)
    splits = {}
    if path.is_dir():
        for split in ("train", "calibration", "test"):
            file = path / f"{split}.npz"
            splits[split] = _pair(file, files.read_npz(file), "x", "y")
        return _in_memory(splits)
    arrays = files.read_npz(path)
    names = {"train": ("images", "labels")}
    if "x_train" in arrays:
        names = {x: (f"x_{x}", f"y_{x}") for x in _STORED if f"x_{x}" in arrays}
    for split, pair in names.items():
        splits[split] = _spread_classes(*_pair(path, arrays, *pair))
    return _in_memory(splits)


def _pair(file, arrays, x, y):
    if not {x, y} <= arrays.keys():
        raise ValueError(
            "An .npz file must hold 'images' and 'labels', or 'x_train', "
            "'y_train', 'x_test' and 'y_test'; in a folder, 'x' and 'y'. "
            f"Received: {list(arrays)} in {str(file)!r}"
        )
    return _checked(arrays[x], arrays[y], f"`{x}` and `{y}` of {str(file)!r}")


def _stored(name, data_dir, image_size, augment):
    """Returns a stored data set of TensorFlow Datasets, without downloads."""
    tfds = checks.library("tensorflow_datasets", "baselines")
    spec = SPECS.get(name)
    tfds_name = "imagenet2012" if name == "imagenet" else str(name)
    try:
        builder = tfds.core.read_only_builder.builder_from_files(
            tfds_name, data_dir=data_dir
        )
    except (tfds.core.DatasetNotFoundError, ValueError) as error:
        where = data_dir or "~/tensorflow_datasets"
        if spec is None:
            others = f"a data set of TensorFlow Datasets in {where}"
            names = (*SPECS, "folder:PATH", "npz:PATH", others)
            checks.choice("name", name, names)
        raise FileNotFoundError(
            f"No data of {name!r} in {where}. Run `tfds build {tfds_name} "
            f"--data_dir={where}`, and pass that folder as `data_dir`. 'digits'"
            f" is embedded and needs none. Received: data_dir={data_dir!r}"
        ) from error
    splits, features = builder.info.splits, builder.info.features
    sizes = {split: info.num_examples for split, info in splits.items()}
    image, label = builder.info.supervised_keys or ("image", "label")
    if not (
        {image, label} <= set(features)
        and isinstance(features[image], tfds.features.Image)
        and isinstance(features[label], tfds.features.ClassLabel)
    ):
        raise ValueError(
            "`name` must be an image classification set. "
            f"Received: name={name!r} with the features {features}"
        )
    *shape, channels = features[image].shape
    has_one_size = None not in shape
    is_cropped = features[image].encoding_format == "jpeg" and not has_one_size
    if is_cropped and not augment:
        raise ValueError(
            f"`augment` must be true for {name!r}, whose training images "
            f"are random crops. Received: augment={augment!r}"
        )
    if not has_one_size:
        image_size = image_size or (spec and spec.image_shape[0])
        _require_size(image_size, name)
        shape = [image_size] * 2
    if spec is None:
        spec = _own_spec(features[label].num_classes, (*shape, 3), sizes)
    spec = dataclasses.replace(spec, image_shape=(*shape, 3))

    def example(features):
        pixels = features[image]
        if not has_one_size:
            pixels = tf.image.resize(pixels, shape)
            pixels = tf.saturate_cast(tf.round(pixels), tf.uint8)
        if channels == 1:
            pixels = tf.repeat(pixels, 3, axis=-1)
        return pixels[..., :3], features[label]

    def read(part):
        with tf.device("CPU:0"):
            # `as_dataset` reads files in order by default.
            examples = builder.as_dataset(split=str(part))
            examples = examples.map(example, tf.data.AUTOTUNE)
            return next(iter(examples.batch(part.size)))

    def parse(record):
        decoders = {image: tfds.decode.SkipDecoding()}
        example = features.deserialize_example(record, decoders=decoders)
        return example[image], example[label]

    def open_records(part):
        stored = imagenet.record_files(splits[str(part)])
        return imagenet.JpegRecords(stored, parse, shape[0])

    return spec, sizes, open_records if is_cropped else read
