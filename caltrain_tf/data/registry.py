"""Data sets by name, as flags and configuration files spell them."""

import dataclasses
import difflib
import functools

from caltrain_tf.data.image_data import ImageData
from caltrain_tf.data.origins import EmbeddedDigits
from caltrain_tf.data.origins import TFDSImages
from caltrain_tf.data.origins import TFDSJpegs
from caltrain_tf.data.parts import check_disjoint
from caltrain_tf.data.parts import parse
from caltrain_tf.data.specs import SPECS


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
    | `digits`, embedded | 1,150 | 287 | 360 |

    Args:
        name: One of the names above.
        data_dir: The folder of TensorFlow Datasets; its own default when not
            given. Nothing is ever downloaded.
        train_split: Another training split, in the syntax of TensorFlow
            Datasets: `"train[:10000]"`.
        calibration_split: The same for calibration.
        test_split: The same for testing. No two splits may overlap.
        image_size: For `imagenet`, another height and width than 224.
        augment: Whether training images are moved and mirrored; always so for
            `imagenet`.
        dtype: Of the images, `"float32"` or `"bfloat16"`.

    Returns:
        An `ImageData`.

    Example:
        >>> import caltrain_tf as ct
        >>> digits = ct.data.get("digits")
        >>> digits.num_examples
        {'train': 1150, 'calibration': 287, 'test': 360}
        >>> images, labels = next(iter(digits.train_batches(128, epoch=3)))
        >>> images.shape, labels.shape
        (TensorShape([128, 32, 32, 3]), TensorShape([128]))
    """
    if name not in SPECS:
        near = difflib.get_close_matches(str(name), SPECS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"`name` must be one of {tuple(SPECS)}.{hint} "
            f"Received: name={name!r}"
        )
    spec = SPECS[name]
    if image_size is not None:
        if name != "imagenet" or image_size < 1:
            raise ValueError(
                "`image_size` must be at least 1, and is for 'imagenet' only. "
                f"Received: image_size={image_size!r} for {name!r}"
            )
        spec = dataclasses.replace(
            spec, image_shape=(image_size, image_size, 3)
        )
    if not augment:
        if name == "imagenet":
            raise ValueError(
                "`augment` must be true for 'imagenet', whose training images "
                f"are random crops. Received: augment={augment!r}"
            )
        spec = dataclasses.replace(spec, max_shift=0, flip=False)
    if name == "digits":
        origin = EmbeddedDigits(spec)
    elif name == "imagenet":
        origin = TFDSJpegs(name, spec, data_dir)
    else:
        origin = TFDSImages(name, spec, data_dir)
    asked = {
        "train": train_split,
        "calibration": calibration_split,
        "test": test_split,
    }
    parts = {
        split: parse(asked[split] or default, origin.sizes)
        for split, default in spec.splits.items()
    }
    check_disjoint(parts)
    return ImageData(name, spec, functools.cache(origin.load), parts, dtype)
