"""Sources of examples, and the fixed properties of the known data sets."""

import dataclasses
import difflib
import os
import zipfile
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from caltrain_tf.data import imagenet
from caltrain_tf.data.in_memory import InMemoryImages

# The last third of the 1,797 digits, because the ECE of fewer images is mostly
# noise.
_NUM_TEST_DIGITS = 600


@dataclasses.dataclass(frozen=True)
class Spec:
    """How a data set is split, normalised and augmented."""

    # The name in TensorFlow Datasets.
    tfds_name: str | None
    num_classes: int
    # (height, width, channels) of the network's input.
    image_shape: tuple[int, int, int]
    # "train", "calibration" and "test", in the syntax of TensorFlow Datasets.
    splits: Mapping[str, str]
    # Of each channel, for pixels in [0, 1].
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    # Training images are padded by so many pixels, cropped and mirrored.
    max_shift: int = 0
    flip: bool = True


# Temperatures and checkpoints must not be selected on the test split, so the
# calibration split is the end of the original training set.
_CIFAR_SPLITS = {
    "train": "train[:90%]",
    "calibration": "train[90%:]",
    "test": "test",
}
_CIFAR10 = Spec(
    tfds_name="cifar10",
    num_classes=10,
    image_shape=(32, 32, 3),
    splits=_CIFAR_SPLITS,
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
    max_shift=2,
)
SPECS = {
    "cifar10": _CIFAR10,
    "cifar100": dataclasses.replace(
        _CIFAR10,
        tfds_name="cifar100",
        num_classes=100,
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
    ),
    "imagenet": Spec(
        tfds_name="imagenet2012",
        num_classes=1000,
        image_shape=(224, 224, 3),
        # 25,623 images for calibration. The labels of "test" are not public.
        splits={
            "train": "train[:98%]",
            "calibration": "train[98%:]",
            "test": "validation",
        },
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
    ),
    "digits": Spec(
        tfds_name=None,
        num_classes=10,
        image_shape=(32, 32, 3),
        # 800, 397 and 600 images.
        splits={
            "train": "train[:800]",
            "calibration": "train[800:]",
            "test": "test",
        },
        mean=(0.3049, 0.3049, 0.3049),
        std=(0.3224, 0.3224, 0.3224),
        max_shift=2,
        flip=False,
    ),
}


class Source(NamedTuple):
    """The examples of a data set."""

    spec: Spec
    # The number of examples of each stored split.
    sizes: Mapping[str, int]
    # From a `Spec`, which may differ in its augmentation, and a `Part`.
    load: Callable
    # Whether training images are random crops.
    is_cropped: bool = False


def digits():
    """Returns the 1,797 8 x 8 digits of scikit-learn, enlarged."""
    from sklearn.datasets import load_digits

    spec = SPECS["digits"]
    pixels, labels = load_digits(return_X_y=True)
    pixels, labels = _spread_classes(pixels, labels)
    with tf.device("CPU:0"):
        images = tf.image.resize(
            pixels.reshape(-1, 8, 8, 1) * (255 / 16), spec.image_shape[:2]
        )
        images = tf.cast(tf.round(images), tf.uint8)
        images = tf.repeat(images, spec.image_shape[2], axis=-1).numpy()
    first = len(labels) - _NUM_TEST_DIGITS
    arrays = {
        "train": (images[:first], labels[:first]),
        "test": (images[first:], labels[first:]),
    }
    return of_arrays(arrays, lambda *facts: spec)


def folder(path, image_size):
    """Returns images from one folder per class, resized and in memory."""
    import keras

    if not os.path.isdir(path):
        raise FileNotFoundError(
            "`name` must be 'folder:' and a folder of images by class. "
            f"Received: name='folder:{path}'"
        )
    if image_size is None:
        raise ValueError(
            "`image_size` must be given for a folder of images. "
            "Received: image_size=None"
        )
    names = set(os.listdir(path))
    stored = {"train", "calibration", "validation", "test"} & names
    folders = {split: os.path.join(path, split) for split in sorted(stored)}
    if "train" not in folders:
        folders = {"train": path}
    arrays, classes = {}, None
    for split in sorted(folders, key=lambda split: split != "train"):
        dataset = keras.utils.image_dataset_from_directory(
            folders[split],
            class_names=classes,
            batch_size=None,
            image_size=(image_size, image_size),
            shuffle=False,
            verbose=False,
        )
        # Other splits must have the same classes as the training set.
        classes = dataset.class_names
        images, labels = zip(*dataset.as_numpy_iterator(), strict=True)
        images = np.clip(np.round(np.stack(images)), 0, 255).astype(np.uint8)
        arrays[split] = _spread_classes(images, np.array(labels))
    return of_arrays(arrays, own_spec)


def npz(path):
    """Returns the arrays of an `.npz` file."""
    try:
        with open(path, "rb") as file, np.load(file) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"`name` must be an .npz file of arrays: {error}. "
            f"Received: {path!r}"
        ) from error
    pairs = {"train": ("images", "labels")}
    if "x_train" in arrays:
        pairs = {
            split: (f"x_{split}", f"y_{split}")
            for split in ("train", "calibration", "validation", "test")
            if f"x_{split}" in arrays
        }
    splits = {}
    for split, (x, y) in pairs.items():
        if x not in arrays or y not in arrays:
            raise ValueError(
                "An .npz file must hold 'images' and 'labels', or 'x_train', "
                f"'y_train', 'x_test' and 'y_test'. Received: {list(arrays)} "
                f"in {path!r}"
            )
        images, labels = arrays[x], arrays[y]
        if images.ndim == 3:
            images = images[..., np.newaxis]
        # Labels of `keras.datasets`, such as CIFAR, have shape (N, 1).
        if labels.shape == (len(images), 1):
            labels = labels[:, 0]
        if (
            images.dtype != np.uint8
            or images.ndim != 4
            or images.shape[-1] not in (1, 3)
            or labels.shape != images.shape[:1]
            or not len(labels)
            or labels.dtype.kind not in "iu"
            or labels.min() < 0
        ):
            raise ValueError(
                f"`{x}` must be uint8 (N, height, width, 3) and `{y}` class "
                f"ids (N,). Received: {x} {images.dtype} {images.shape}, "
                f"{y} {labels.dtype} {labels.shape} in {path!r}"
            )
        images = np.broadcast_to(images, (*images.shape[:-1], 3))
        splits[split] = _spread_classes(images, labels.astype(int))
    return of_arrays(splits, own_spec)


def tensorflow_datasets(name, data_dir, image_size):
    """Returns a stored data set of TensorFlow Datasets, without downloads."""
    tfds = import_tfds()
    tfds_name = SPECS[name].tfds_name if name in SPECS else str(name)
    try:
        builder = tfds.core.read_only_builder.builder_from_files(
            tfds_name, data_dir=data_dir
        )
    except (tfds.core.DatasetNotFoundError, ValueError) as error:
        raise _not_found(name, tfds_name, data_dir) from error
    sizes = {
        split: info.num_examples for split, info in builder.info.splits.items()
    }
    image, label = builder.info.supervised_keys or ("image", "label")
    features = builder.info.features
    if not (
        {image, label} <= set(features)
        and isinstance(features[image], tfds.features.Image)
        and isinstance(features[label], tfds.features.ClassLabel)
    ):
        raise ValueError(
            "`name` must be an image classification set. "
            f"Received: name={name!r} with the features {features}"
        )
    feature = features[image]
    height, width, _ = feature.shape
    has_one_size = height is not None and width is not None
    is_cropped = name == "imagenet" or (
        feature.encoding_format == "jpeg" and not has_one_size
    )
    if not has_one_size and name not in SPECS and image_size is None:
        raise ValueError(
            f"`image_size` must be given for {name!r}, whose images are of "
            "different sizes. Received: image_size=None"
        )
    shape = (height, width) if has_one_size else (image_size, image_size)
    spec = SPECS.get(name)
    if spec is None:
        spec = own_spec(features[label].num_classes, shape, sizes)
    elif is_cropped and image_size is not None and image_size >= 1:
        spec = dataclasses.replace(spec, image_shape=(*shape, 3))

    def load(spec, part):
        def example(features):
            pixels = features[image]
            if not has_one_size:
                pixels = tf.image.resize(pixels, spec.image_shape[:2])
                pixels = tf.saturate_cast(tf.round(pixels), tf.uint8)
            if feature.shape[-1] == 1:
                pixels = tf.repeat(pixels, 3, axis=-1)
            return pixels[..., :3], features[label]

        with tf.device("CPU:0"):
            # `as_dataset` reads files in order by default.
            examples = builder.as_dataset(split=str(part)).map(
                example, num_parallel_calls=tf.data.AUTOTUNE
            )
            images, labels = next(iter(examples.batch(part.size)))
        return InMemoryImages(
            images, labels, max_shift=spec.max_shift, flip=spec.flip
        )

    def open_records(spec, part):
        decoders = {image: tfds.decode.SkipDecoding()}

        def parse(record):
            example = features.deserialize_example(record, decoders=decoders)
            return example[image], example[label]

        files = record_files(builder.info.splits[str(part)])
        return imagenet.JpegRecords(files, parse, spec.image_shape[0])

    return Source(spec, sizes, open_records if is_cropped else load, is_cropped)


def import_tfds():
    """Returns the module `tensorflow_datasets`."""
    try:
        import tensorflow_datasets
    except ImportError as error:
        raise ImportError(
            "This data set needs TensorFlow Datasets. "
            'Run `pip install "caltrain_tf[baselines]"`.'
        ) from error
    return tensorflow_datasets


def record_files(split):
    """Returns the files of a split of TensorFlow Datasets."""
    return [
        imagenet.File(str(file.filename), file.skip, file.take)
        for file in split.file_instructions
    ]


def _not_found(name, tfds_name, data_dir):
    where = data_dir or "~/tensorflow_datasets"
    if name in SPECS:
        return FileNotFoundError(
            f"No data of {name!r} in {where}. To get them, run `tfds build "
            f"{tfds_name} --data_dir={where}`, and pass that folder as "
            "`data_dir`. The data set 'digits' is embedded and "
            f"needs none. Received: data_dir={data_dir!r}"
        )
    near = difflib.get_close_matches(str(name), SPECS, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return ValueError(
        f"`name` must be one of {tuple(SPECS)}, 'folder:PATH', 'npz:PATH' or "
        f"a data set of TensorFlow Datasets that is in {where}.{hint} "
        f"Received: name={name!r}"
    )


def of_arrays(arrays, make_spec):
    """Returns images in memory, from (images, labels) of each stored split."""
    sizes = {split: len(labels) for split, (_, labels) in arrays.items()}
    images = next(iter(arrays.values()))[0]
    num_classes = 1 + max(int(labels.max()) for _, labels in arrays.values())

    def load(spec, part):
        images, labels = arrays[part.stored]
        chosen = slice(part.start, part.stop)
        return InMemoryImages(
            images[chosen],
            labels[chosen],
            max_shift=spec.max_shift,
            flip=spec.flip,
        )

    return Source(make_spec(num_classes, images.shape[1:3], sizes), sizes, load)


def own_spec(num_classes, shape, sizes):
    """Returns the `Spec` of data that are not in `SPECS`."""
    test = next((s for s in ("test", "validation") if s in sizes), None)
    if "train" in sizes and test is not None:
        splits = {**_CIFAR_SPLITS, "test": test}
        if "calibration" in sizes:
            splits |= {"train": "train", "calibration": "calibration"}
    else:
        only = "train" if "train" in sizes else next(iter(sizes))
        splits = {
            "train": f"{only}[:80%]",
            "calibration": f"{only}[80%:90%]",
            "test": f"{only}[90%:]",
        }
    return Spec(
        tfds_name=None,
        num_classes=num_classes,
        image_shape=(*shape, 3),
        splits=splits,
        mean=(0.5, 0.5, 0.5),
        std=(0.25, 0.25, 0.25),
        max_shift=min(shape) // 8,
    )


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
