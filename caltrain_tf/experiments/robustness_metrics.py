r"""The reports and metrics of robustness_metrics, and runs in its scripts.

robustness_metrics is on no registry; the guide on shift says how to install it.
The shift benchmark writes `robustness_metrics.json` through its metrics and
reports where it is installed, and computes the same keys itself otherwise.

Its scripts take a Python file with a function `create`. One import in such a
file is enough, followed by the command; `TFDS_DATA_DIR` is the folder of
TensorFlow Datasets:

    from caltrain_tf.experiments.robustness_metrics import create

    python -m robustness_metrics.bin.compute_report --model_path=that_file.py \
        --model_args="run_dir='runs/focal',calibrator='ts'" \
        --report="cifar10_variants"
"""

import importlib.util
import json
import os

import numpy as np
import tensorflow as tf

from caltrain_tf import checks, files, metrics
from caltrain_tf.data import imagenet
from caltrain_tf.data.corruptions import NAMES

_METRICS = ("accuracy", "nll", "brier", "ece")


class Measurements:
    """Collects what a report of robustness_metrics says, set by set.

    Predictions are not kept. Metrics have the names of that package, where
    `ece` is l1 over bins of equal width; ours, l2 over bins of equal mass, is
    `caltrain_ece`. Those of scaled predictions end in the calibrator's name.

    Attributes:
        rows: Tuples of data set, corruption, severity, calibrator, metric and
            value, as in `shift.csv`.
    """

    def __init__(self):
        self._package = _import()
        self.rows = []

    def add(self, where, logits, labels, ours):
        """Adds the predictions for a set.

        Args:
            where: Data set, corruption, severity and calibrator.
            logits: Scaled logits.
            labels: Class ids.
            ours: Values of our own metrics by name.
        """
        values = {name: ours[name] for name in ("accuracy", "nll", "brier")}
        if self._package is None:
            values["ece"] = metrics.calibration_error(
                logits,
                labels,
                norm=1,
                binning="equal_width",
                from_logits=True,
            )
        else:
            probs = tf.nn.softmax(tf.cast(logits, "float32"))
            for name in _METRICS:
                metric = self._package.metrics.get(name, None)
                metric.add_batch(probs, label=labels)
                (values[name],) = metric.result().values()
        values["caltrain_ece"] = ours["ece"]
        self.rows += [(*where, name, float(x)) for name, x in values.items()]

    def report(self, is_generated):
        """Returns the results of its report, or None if it is not installed.

        That of ImageNet has the mean corruption error too, if all published
        sets were measured. There is none for other data than CIFAR-10, but that
        of CIFAR-10 has all keys they need.
        """
        if self._package is None:
            return None
        dataset = self.rows[0][0]
        published = {row[1:3] for row in self.rows if row[1] in NAMES}
        kind = "cifar10"
        if dataset == "imagenet" and len(published) == 75 and not is_generated:
            kind = dataset
        report = self._package.reports.get(f"{kind}_variants")
        for _, corruption, severity, calibrator, metric, value in self.rows:
            where = kind
            if severity:
                if corruption not in NAMES:
                    continue
                where += f"_c(corruption_type='{corruption}',severity=1)"
            if calibrator != "none":
                metric += f"_{calibrator}"
            report.add_measurement(where, metric, {metric: value})
        return {
            key.replace(kind, dataset, 1): np.asarray(value).item()
            for key, value in report.result().items()
        }


def create(run_dir, calibrator="none", data_dir=None):
    """Returns a run's network in the form that robustness_metrics takes.

    Args:
        run_dir: The folder of a finished run.
        calibrator: `"ts"` or `"ts_sb_ece"` to scale by the temperature in
            `results.json`, or `"none"`.
        data_dir: The folder of TensorFlow Datasets.

    Returns:
        `(model, preprocess_fn)`: a function from batched features with
        `"image"` to probabilities, and a function that resizes the uint8 image
        of features to the input size of the network.
    """
    # It imports this file.
    from caltrain_tf.experiments import shift

    temperatures = {"none": 1.0}
    results = (files.as_path(run_dir) / "results.json").read_text()
    for key, value in json.loads(results).items():
        if key.startswith("temperature_"):
            temperatures[key.removeprefix("temperature_")] = value
    checks.choice("calibrator", calibrator, temperatures)
    _, data, network, _ = shift.load_run(run_dir, data_dir)

    def model(features):
        logits = tf.cast(network(features["image"], training=False), "float32")
        return tf.nn.softmax(logits / temperatures[calibrator])

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


def _import():
    """Returns robustness_metrics, or None where it cannot be used."""
    if importlib.util.find_spec("robustness_metrics") is None:
        return None
    if os.environ.get("TF_USE_LEGACY_KERAS") != "1":
        checks.warn(
            "robustness_metrics is installed, but works only with "
            "TF_USE_LEGACY_KERAS=1 in the environment. Its keys are computed "
            "without it."
        )
        return None
    import robustness_metrics

    return robustness_metrics
