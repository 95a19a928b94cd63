r"""Metrics and networks of this package in reports of robustness_metrics.

robustness_metrics is not on PyPI; the guide on shift says how to install it.

Its scripts take a Python file with a function `create`. One import in such a
file is enough, followed by the command:

    from caltrain_tf.experiments.robustness_metrics import create

    python -m robustness_metrics.bin.compute_report --model_path=that_file.py \
        --model_args="run_dir='runs/focal'" --report="caltrain_cifar10"

`create` registers the metrics `caltrain_ece`, `caltrain_nll`, ... and the
reports `caltrain_cifar10` and `caltrain_imagenet`, whose keys are those of
`robustness_metrics.json`. The `ece` of robustness_metrics fails under Keras 3;
`caltrain_ece` does not.
"""

import json
import os

import numpy as np
import tensorflow as tf

from caltrain_tf import checks, metrics
from caltrain_tf import data as data_room
from caltrain_tf.data.imagenet import central_window
from caltrain_tf.data.shifted import stored_name
from caltrain_tf.experiments import shift

# The newest version that was tried.
SOURCE = (
    "https://github.com/google-research/robustness_metrics"
    "@93ac2c25e85d738471b22c71635bf17e48117b9c"
)
_PREFIX = "caltrain_"
_METRICS = {
    "accuracy": metrics.accuracy,
    "nll": metrics.negative_log_likelihood,
    "brier": metrics.brier_score,
    "ece": metrics.calibration_error,
    "ks_error": metrics.ks_error,
    "mean_sweep_ce": metrics.mean_sweep_calibration_error,
    "marginal_ece": metrics.marginal_calibration_error,
}
_REPORTED = ("accuracy", "nll", "brier", "ece")
_DATASETS = ("cifar10", "imagenet")


def register():
    """Registers the metrics and reports of this package, once.

    Metrics take a temperature that scales the predictions, as in the spec
    `caltrain_ece(temperature=1.5)`. Reports take temperatures by calibrator:
    `caltrain_cifar10(temperatures={'ts': 1.5, 'ts_sb_ece': 1.4})`.

    Returns:
        The module `robustness_metrics`.
    """
    rm = _import()
    known = rm.metrics.base.registry.get_registered_subclasses()
    if _PREFIX + "ece" in known:
        return rm
    for name, function in _METRICS.items():
        rm.metrics.base.registry.register_subclass(
            _PREFIX + name, _metric_class(rm, name, function)
        )
    for dataset in _DATASETS:
        rm.reports.base.registry.register_subclass(
            _PREFIX + dataset, _report_class(rm, dataset)
        )
    return rm


def create(run_dir, calibrator="none", data_dir=None):
    """Returns a run's network in the form that robustness_metrics takes.

    Args:
        run_dir: The folder of a finished run.
        calibrator: `"ts"` or `"ts_sb_ece"` to scale by the temperature in
            `results.json`, or `"none"`. Use `"none"` if metrics or reports are
            given temperatures; otherwise predictions would be scaled twice.
        data_dir: The folder of TensorFlow Datasets.

    Returns:
        `(model, preprocess_fn)`: a function from batched features with
        `"image"` to probabilities, and a function that resizes the uint8 image
        of features to the input size of the network.
    """
    register()
    temperature = 1.0
    if calibrator != "none":
        path = os.path.join(run_dir, "results.json")
        with open(path, encoding="utf-8") as file:
            results = json.load(file)
        key = f"temperature_{calibrator}"
        if key not in results:
            raise ValueError(
                "`calibrator` must be 'none', or one that results.json has a "
                f"temperature of. Received: calibrator={calibrator!r}"
            )
        temperature = results[key]
    _, data, network, _ = shift.load_run(run_dir, data_dir)

    def model(features):
        logits = tf.cast(network(features["image"], training=False), "float32")
        return tf.nn.softmax(logits / temperature)

    def preprocess_fn(features):
        image = _as_size(features["image"], data.image_shape)
        return {**features, "image": image}

    return model, preprocess_fn


def _as_size(image, shape):
    """Crops an image of another size as `data.imagenet.central_crop` does."""
    height, width, _ = shape
    if image.shape[:2] == (height, width):
        return image
    top, left, side, _ = tf.unstack(central_window(tf.shape(image)))
    square = image[top : top + side, left : left + side]
    resized = tf.image.resize(square, (height, width), "bicubic")
    resized = tf.saturate_cast(tf.round(resized), tf.uint8)
    return tf.ensure_shape(resized, shape)


def _metric_class(rm, name, function):
    class Metric(rm.metrics.FullBatchMetric):
        def __init__(
            self, dataset_info=None, use_dataset_labelset=False, temperature=1.0
        ):
            checks.number("temperature", temperature, low=0)
            super().__init__(dataset_info, use_dataset_labelset)
            self._temperature = temperature

        def add_predictions(self, model_predictions, metadata):
            if "element_id" in metadata:
                # NumPy 2.4 does not convert an array of one number to a number.
                (element,) = np.ravel(metadata["element_id"])
                metadata = {**metadata, "element_id": element}
            super().add_predictions(model_predictions, metadata)

        def result(self):
            probs = np.asarray(self._predictions, np.float64)
            # Any logits with these probabilities can be used. Probabilities
            # below the smallest float32 number are exactly 0.
            tiny = np.finfo(np.float32).tiny
            logits = np.log(np.maximum(probs, tiny)) / self._temperature
            labels = np.asarray(self._labels).reshape(len(probs))
            value = function(logits, labels, from_logits=True)
            return {_PREFIX + name: float(value)}

    Metric.__name__ = Metric.__qualname__ = _PREFIX + name
    return Metric


def _report_class(rm, dataset):
    base = rm.reports.base

    class Report(base.Report):
        def __init__(self, temperatures=None):
            self._names = {_PREFIX + metric: metric for metric in _REPORTED} | {
                f"{_PREFIX}{metric}(temperature={temperature!r})": (
                    f"{metric}_{calibrator}"
                )
                for calibrator, temperature in (temperatures or {}).items()
                for metric in _REPORTED
            }
            self._clean = {}
            self._shifted = {}

        @property
        def required_measurements(self):
            names = [
                stored_name(dataset, name)
                for name in data_room.corruptions.NAMES
            ]
            sets = [dataset] + [
                f"{dataset}_c(corruption_type={name!r},severity={severity})"
                for name in names
                for severity in data_room.corruptions.SEVERITIES
            ]
            for where in sets:
                for metric in self._names:
                    yield base.MeasurementSpec(where, metric)

        def add_measurement(self, dataset_name, metric_name, metric_results):
            (value,) = metric_results.values()
            name = self._names[metric_name]
            if dataset_name == dataset:
                self._clean[f"{dataset}/{name}"] = value
            else:
                key = f"{dataset}_c/{name}"
                self._shifted.setdefault(key, []).append(value)

        def result(self):
            stats = base.compute_stats_per_bucket(self._shifted)
            return {**self._clean, **{k: float(v) for k, v in stats.items()}}

    Report.__name__ = Report.__qualname__ = _PREFIX + dataset
    return Report


def _import():
    try:
        import robustness_metrics
        import robustness_metrics.metrics.base
        import robustness_metrics.reports.base
    except ImportError as error:
        raise ImportError(
            "robustness_metrics is missing, or something that it needs: "
            f"{error}. It is on no registry: pip install "
            f'"git+{SOURCE}" clu tensorflow_hub tensorflow_probability tf_keras'
        ) from error
    return robustness_metrics
