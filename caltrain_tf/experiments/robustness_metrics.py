r"""The keys of robustness_metrics's reports, and runs in its scripts.

The shift benchmark writes `robustness_metrics.json`, for which that package
need not be installed; the guide on shift says how to install it. Its scripts
take a Python file with a function `create`. One import in such a file is
enough, followed by the command; `TFDS_DATA_DIR` is the folder of TensorFlow
Datasets:

    from caltrain_tf.experiments.robustness_metrics import create

    python -m robustness_metrics.bin.compute_report --model_path=that_file.py \
        --model_args="run_dir='runs/focal',calibrator='ts'" \
        --report="cifar10_variants"
"""

import pandas as pd
import tensorflow as tf

from caltrain_tf import checks
from caltrain_tf.data import imagenet
from caltrain_tf.data.corruptions import NAMES
from caltrain_tf.experiments import experiment, measures

# Of `shift.csv`.
COLUMNS = ["dataset", "corruption", "severity", "calibrator", "metric", "value"]
# Mean errors of AlexNet on ImageNet-C, relative to which mCE is defined, and on
# clean images; Hendrycks and Dietterich, 2019, appendix C.
_ALEXNET_ERRORS = (
    *(0.886, 0.894, 0.923, 0.820, 0.826, 0.786, 0.798, 0.867),
    *(0.827, 0.819, 0.565, 0.853, 0.646, 0.718, 0.607),
)
_ALEXNET_CLEAN_ERROR = 0.4348


class Measurements:
    """Collects what a report of robustness_metrics says, set by set.

    Metrics have the names of that package, where `ece` is l1 over bins of equal
    width; ours, l2 over bins of equal mass, is `caltrain_ece`. Those of scaled
    predictions end in the calibrator's name.
    """

    def __init__(self):
        self._rows = []

    def add(self, where, logits, labels, ours):
        """Adds the scaled logits of a set, and values of our own metrics.

        `where` is the data set, the corruption, the severity, the calibrator.
        """
        values = {name: ours[name] for name in ("accuracy", "nll", "brier")}
        values["ece"] = measures.measure(logits, labels, ["ece_l1"])["ece_l1"]
        values["caltrain_ece"] = ours["ece"]
        self._rows += [(*where, name, value) for name, value in values.items()]

    def frame(self):
        """Returns the measurements with the columns of `shift.csv`."""
        return pd.DataFrame(self._rows, columns=COLUMNS)

    def report(self, is_generated):
        """Returns the contents of `robustness_metrics.json`."""
        return robustness_report(self.frame(), is_generated)


def robustness_report(rows, is_generated=False):
    """Returns what a report of robustness_metrics says of measurements.

    Keys are `cifar10/ece`, `cifar10_c/ece/mean`, `cifar10_c/ece_ts/std`; for
    ImageNet also `imagenet_c/mce` and its parts, if `rows` has all published
    sets.
    """
    suffix = ("_" + rows["calibrator"]).where(rows["calibrator"] != "none", "")
    rows = rows.assign(name=rows["metric"] + suffix)
    rows = rows[rows["corruption"].isin(["none", *NAMES])]
    clean = rows[rows["corruption"] == "none"]
    keys = clean["dataset"] + "/" + clean["name"]
    report = dict(zip(keys, clean["value"], strict=True))
    shifted = rows[rows["corruption"] != "none"]
    for (dataset, name), here in shifted.groupby(["dataset", "name"])["value"]:
        report |= {
            f"{dataset}_c/{name}/mean": float(here.mean()),
            f"{dataset}_c/{name}/std": float(here.std(ddof=0)),
            f"{dataset}_c/{name}/count": len(here),
        }
    sets = shifted.drop_duplicates(["corruption", "severity"])
    is_imagenet = (rows["dataset"] == "imagenet").all()
    if is_imagenet and len(sets) == 75 and not is_generated:
        accuracy = rows[rows["name"] == "accuracy"].groupby("corruption")
        errors = 1 - accuracy["value"].mean()
        clean, errors = errors["none"], errors[list(NAMES)]
        alexnet = pd.Series(_ALEXNET_ERRORS, NAMES)
        relative = (errors - clean) / (alexnet - _ALEXNET_CLEAN_ERROR)
        for kind, values in (("", errors / alexnet), ("relative_", relative)):
            for name, value in values.items():
                report[f"imagenet_c/{name}/{kind}ce"] = float(value)
            report[f"imagenet_c/{kind}mce"] = float(values.mean())
    return report


def create(run_dir, calibrator="none", data_dir=None):
    """Returns a run's network in the form that robustness_metrics takes.

    These are `(model, preprocess_fn)`: a function from batched features with
    `"image"` to probabilities, and a function that resizes the image of
    features. `calibrator` is `"ts"`, `"ts_sb_ece"` or `"none"`.
    """
    # `shift` imports this file.
    from caltrain_tf.experiments import shift

    checks.choice("calibrator", calibrator, ["none", *measures.CALIBRATORS])
    results = experiment.read_results(run_dir)
    temperature = results.get(f"temperature_{calibrator}", 1.0)
    _, data, network = shift.load_run(run_dir, data_dir)

    def model(features):
        logits = tf.cast(network(features["image"], training=False), "float32")
        return tf.nn.softmax(logits / temperature)

    def preprocess_fn(features):
        image = as_size(features["image"], data.image_shape)
        return {**features, "image": image}

    return model, preprocess_fn


def as_size(image, shape):
    """Resizes an image; crops it first if it is of a set of different sizes.

    ImageNet-C is stored as crops of 224 x 224 pixels, ImageNet is not.
    """
    if image.shape[:2] == shape[:2]:
        return image
    if None in image.shape[:2]:
        top, left, side, _ = tf.unstack(
            imagenet.central_window(tf.shape(image))
        )
        image = image[top : top + side, left : left + side]
    return imagenet.resize(image, shape)
