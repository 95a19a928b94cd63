"""What is fixed about each data set; the splits are stated here only."""

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Spec:
    """A data set's facts.

    Attributes:
        tfds_name: Its name in TensorFlow Datasets; `None` where embedded.
        num_classes: How many classes it has.
        image_shape: (height, width, channels) as a network sees it.
        splits: What "train", "calibration" and "test" are, in the split
            syntax of TensorFlow Datasets. No example is in two of them.
        mean: Of each channel, for pixels in [0, 1].
        std: The same for the standard deviation.
        max_shift: Training images are moved by at most as many pixels, which
            is to pad by this and to crop.
        flip: Whether half of the training images are mirrored.
    """

    tfds_name: str | None
    num_classes: int
    image_shape: tuple[int, int, int]
    splits: Mapping[str, str]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    max_shift: int = 0
    flip: bool = True


# The test split never picks a temperature or a checkpoint: calibration is the
# tail of what the data set calls its training set.
_CIFAR_SPLITS = {
    "train": "train[:90%]",
    "calibration": "train[90%:]",
    "test": "test",
}

SPECS = {
    "cifar10": Spec(
        tfds_name="cifar10",
        num_classes=10,
        image_shape=(32, 32, 3),
        splits=_CIFAR_SPLITS,
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
        max_shift=4,
    ),
    "cifar100": Spec(
        tfds_name="cifar100",
        num_classes=100,
        image_shape=(32, 32, 3),
        splits=_CIFAR_SPLITS,
        mean=(0.5071, 0.4865, 0.4409),
        std=(0.2673, 0.2564, 0.2762),
        max_shift=4,
    ),
    "imagenet": Spec(
        tfds_name="imagenet2012",
        num_classes=1000,
        image_shape=(224, 224, 3),
        # 25,623 images for calibration; nobody has the labels of "test".
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
        # 1,150, 287 and 360 images.
        splits={
            "train": "train[:80%]",
            "calibration": "train[80%:]",
            "test": "test",
        },
        mean=(0.3057, 0.3057, 0.3057),
        std=(0.3235, 0.3235, 0.3235),
        max_shift=2,
        flip=False,
    ),
}
