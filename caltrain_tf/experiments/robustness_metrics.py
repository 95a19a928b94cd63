"""The reports and metrics of robustness_metrics, and runs in its scripts.

Its keys are computed without it where it is not installed.
"""

import importlib.util
import os

import numpy as np
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
        self._package = _import()
        self._rows = []

    def add(self, where, logits, labels, ours):
        """Adds a set: where it is in `shift.csv`, and our metrics of it."""
        values = {**ours, "caltrain_ece": ours["ece"]}
        if self._package is None:
            (l1,) = measures.measure(logits, labels, ["ece_l1"]).values()
            values["ece"] = l1
        else:
            probs = tf.nn.softmax(tf.cast(logits, "float32"))
            for name in ours:
                metric = self._package.metrics.get(name, None)
                metric.add_batch(probs, label=labels)
                (values[name],) = metric.result().values()
        self._rows += [(*where, name, float(x)) for name, x in values.items()]

    def frame(self):
        """Returns the measurements with the columns of `shift.csv`."""
        return pd.DataFrame(self._rows, columns=COLUMNS)

    def report(self, is_generated):
        """Returns the contents of `robustness_metrics.json`."""
        rows = self.frame()
        if self._package is None:
            return robustness_report(rows, is_generated)
        # There is no report of other data than these, but that of CIFAR-10 has
        # all keys they need.
        dataset, kind = rows["dataset"][0], "cifar10"
        if _has_corruption_errors(rows, is_generated):
            kind = dataset
        report = self._package.reports.get(f"{kind}_variants")
        for row in _with_names(rows).itertuples():
            where = kind
            if row.severity:
                where += f"_c(corruption_type='{row.corruption}',severity=1)"
            report.add_measurement(where, row.name, {row.name: row.value})
        return {
            key.replace(kind, dataset, 1): np.asarray(value).item()
            for key, value in report.result().items()
        }


def robustness_report(rows, is_generated=False):
    """Returns what a report of robustness_metrics says, without that package.

    `imagenet_c/mce` and its parts are there if all published sets are.
    """
    rows = _with_names(rows)
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
    if _has_corruption_errors(rows, is_generated):
        accuracy = rows[rows["name"] == "accuracy"].groupby("corruption")
        errors = 1 - accuracy["value"].mean()
        alexnet = pd.Series(_ALEXNET_ERRORS, NAMES)
        above = errors[list(NAMES)] - errors["none"]
        ratios = {
            "ce": errors[list(NAMES)] / alexnet,
            "relative_ce": above / (alexnet - _ALEXNET_CLEAN_ERROR),
        }
        for key, values in ratios.items():
            for name, value in values.items():
                report[f"imagenet_c/{name}/{key}"] = float(value)
            mean = key.replace("ce", "mce")
            report[f"imagenet_c/{mean}"] = float(values.mean())
    return report


def _with_names(rows):
    """Returns the rows of its corruptions, with the names of measurements."""
    suffix = ("_" + rows["calibrator"]).where(rows["calibrator"] != "none", "")
    rows = rows.assign(name=rows["metric"] + suffix)
    return rows[rows["corruption"].isin(["none", *NAMES])]


def _has_corruption_errors(rows, is_generated):
    """Returns whether these are all published sets of ImageNet."""
    sets = rows[rows["corruption"].isin(NAMES)]
    sets = sets[["corruption", "severity"]].drop_duplicates()
    is_imagenet = (rows["dataset"] == "imagenet").all()
    return is_imagenet and len(sets) == 75 and not is_generated


def create(run_dir, calibrator="none", data_dir=None):
    """Returns a run's network as robustness_metrics takes it.

    These are `(model, preprocess_fn)`, functions of features with an `"image"`.
    `calibrator` is `"ts"`, `"ts_sb_ece"` or `"none"`.
    """
    # It imports this file.
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
    """Resizes an image, and crops it first if sizes differ: not ImageNet-C."""
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
