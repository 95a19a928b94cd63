"""The shift benchmark: networks of finished runs on corrupted test sets."""

import contextlib
import functools
import itertools
import json
import math
import os

import keras
import pandas as pd
import tensorflow as tf
import tqdm

from caltrain_tf import checks, files, losses, models, training
from caltrain_tf import data as data_room
from caltrain_tf.data import corruptions as all_corruptions
from caltrain_tf.experiments import (
    build,
    config,
    figures,
    measures,
    prediction_files,
    robustness_metrics,
    statistics,
    tables,
    uncertainty_baselines,
)
from caltrain_tf.training.strategy import is_multi_worker

COLUMNS = robustness_metrics.COLUMNS
_NOTE = """\
± is one standard error within corruptions (Masson and Loftus): how much one
calibrator is ahead of another varies by that over corruptions."""


def find_runs(paths):
    """Returns the folders of finished runs at or below the paths, sorted."""
    found = {p: config.find(p, "config.json", "results.json") for p in paths}
    for path, runs in found.items():
        if not runs:
            raise ValueError(
                "--run_dir must be the folder of a finished run, with "
                "config.json and results.json, or hold such folders. "
                f"Received: {path!r}"
            )
    return sorted({os.fspath(run) for runs in found.values() for run in runs})


def load_run(run_dir, data_dir=None, strategy=None):
    """Returns the configuration, the data and the network of a run."""
    settings = config.load(run_dir)
    with (strategy or tf.distribute.get_strategy()).scope():
        model = models.load(os.path.join(run_dir, "model.keras"))
    return settings, build.data(settings, data_dir), model


def evaluate(
    model,
    data,
    *,
    sets=None,
    corruptions=all_corruptions.NAMES,
    severities=all_corruptions.SEVERITIES,
    batch_size=256,
    num_examples=None,
    predictions_dir=None,
    keep_predictions=True,
    report=None,
    strategy=None,
    verbose=False,
):
    """Returns measures of the clean test split and under shift: `shift.csv`.

    The clean test set has the corruption `"none"` and severity 0. Temperatures
    are fitted to the clean calibration split, never to shifted data.

    Args:
        model: A Keras model; with several replicas, made in their scope.
        data: An `ImageData` (`ct.data.get`), or an `ArrayData`.
        sets: From `ct.data.shifted_sets`; generated on the fly if None.
        corruptions: Names of corruptions.
        severities: Severities, from 1 to 5.
        batch_size: Size of the global batch.
        num_examples: Number of first examples of each test set; all if None.
        predictions_dir: Folder of predictions, which are used again while the
            sets and `num_examples` are the same.
        keep_predictions: Whether to store those of corrupted sets.
        report: `robustness_metrics.Measurements` that are made too.
        strategy: The strategy whose replicas share each batch.
        verbose: Whether to show progress.
    """
    names = all_corruptions.NAMES + all_corruptions.EXTRA_NAMES
    for name in corruptions:
        checks.choice("corruptions", name, names)
    for severity in severities:
        checks.choice("severities", severity, all_corruptions.SEVERITIES)
    sets = data_room.GeneratedSets(data) if sets is None else sets
    strategy = strategy or tf.distribute.get_strategy()
    count = min(sets.num_examples, num_examples or sets.num_examples)
    writes = predictions_dir is not None and training.is_chief(strategy)
    # Workers predict together, so all of them must predict the same sets.
    reads = predictions_dir is not None and not is_multi_worker(strategy)
    folder = files.as_path(predictions_dir or "")
    if writes:
        _keep_only(folder, {"source": sets.source, "num_examples": count})
    replicas = strategy.num_replicas_in_sync
    batch_size = -(-batch_size // replicas) * replicas
    with strategy.scope():  # Only `predict` is used.
        loss, sgd = losses.NLL(from_logits=True), keras.optimizers.SGD()
        trainer = training.Trainer(
            model, loss, sgd, strategy, jit_compile=False
        )

    def predictions(name, make_input, size=None, keep=True):
        path = folder / f"{name}.npz"
        if reads:  # Missing, damaged and shorter files are computed.
            with contextlib.suppress(FileNotFoundError, ValueError):
                logits, labels = prediction_files.load(path)
                if len(labels) >= (size or 0):
                    return logits[:size], labels[:size]
        source = make_input(batch_size)
        if size is not None:
            source = build.first(source, -(-size // batch_size))
        outputs = trainer.predict(source, with_labels=True)
        logits, labels = (array[:size] for array in outputs)
        if writes and keep:
            prediction_files.save(path, logits, labels)
        return logits, labels

    calibration, test = (
        predictions(split, functools.partial(data.eval_input, split))
        for split in ("calibration", "test")
    )
    calibrators = measures.fit_calibrators(*calibration)
    test = [array[:count] for array in test]
    rows = measure((data.name, "none", 0), *test, calibrators, report)
    pairs = list(itertools.product(corruptions, severities))
    progress = {"disable": not verbose, "unit": "set"}
    for where in tqdm.tqdm(pairs, "corrupted sets", **progress):
        make_input = functools.partial(sets.eval_input, *where)
        name = "{}_{}".format(*where)
        found = predictions(name, make_input, count, keep_predictions)
        rows += measure((data.name, *where), *found, calibrators, report)
    return pd.DataFrame(rows, columns=COLUMNS)


def _keep_only(folder, about):
    """Removes predictions for sets of another source than `shift.json` says."""
    path = folder / "shift.json"
    stored = files.read_json(path) if path.exists() else {}
    if stored.get("source") != about["source"]:
        for file in list(folder.glob("*_[1-5].npz")):
            file.unlink()
    files.write_text(path, json.dumps(about, indent=1) + "\n")


def measure(where, logits, labels, calibrators, report=None):
    """Returns rows of `COLUMNS`, of which `where` has the first three."""
    names, scaled = ("accuracy", "nll", "brier", "ece"), {"none": logits}
    scaled |= {k: each.transform(logits) for k, each in calibrators.items()}
    rows = []
    for calibrator, outputs in scaled.items():
        here = (*where, calibrator)
        measured = measures.measure(outputs, labels, names)
        if report is not None:
            report.add(here, outputs, labels, measured)
        rows += [(*here, metric, value) for metric, value in measured.items()]
    return rows


def write(run_dir, settings, rows, report, sets):
    """Writes the files of a run's benchmark."""
    folder, name = files.as_path(run_dir), config.objective(settings)
    logged = uncertainty_baselines.log_names(report.frame())
    values = report.report(sets.is_generated) | logged
    text = json.dumps(values, indent=2, sort_keys=True)
    files.write_text(folder / "robustness_metrics.json", text + "\n")
    for metric in ("ece", "accuracy"):
        means = statistics.shift_by_calibrator(rows, metric)
        if metric == "accuracy":  # Scaling does not change it.
            means = means[means["calibrator"] == "none"]
        figure = figures.shift_lines(means, metric, name)
        figures.save(figure, folder / f"shift_{metric}.png")
    # Written last, because it marks the benchmark as finished.
    files.write_text(folder / "shift.csv", rows.to_csv(index=False))


def severity_table(rows):
    """Returns a table for the terminal: means over corruptions by severity."""
    lines = {}
    for metric in ("ece", "accuracy", "nll", "brier"):
        for row in statistics.shift_by_calibrator(rows, metric).itertuples():
            label = figures.metric_label(metric)
            if metric != "accuracy":  # Scaling does not change it.
                label += f", {figures.calibrator_label(row.calibrator)}"
            head = f"severity {row.severity}" if row.severity else "clean"
            error = row.error if metric == "ece" else math.nan
            text = tables.text_of(row.mean, error, metric)
            lines.setdefault(label, {})[head] = text
    table = pd.DataFrame.from_dict(lines, orient="index").fillna("")
    table = table.rename_axis("mean over corruptions", axis="columns")
    text = table.to_string(col_space=14)
    return f"{text}\n{_NOTE}" if "±" in text else text
