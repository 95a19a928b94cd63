"""The shift benchmark: networks of finished runs on corrupted test sets."""

import json
import os
import sys

import keras
import pandas as pd
import tensorflow as tf
import tqdm

from caltrain_tf import checks, files, losses, metrics, training
from caltrain_tf import data as data_room
from caltrain_tf.data import corruptions as all_corruptions
from caltrain_tf.experiments import (
    build,
    config,
    figures,
    measures,
    prediction_files,
    robustness_metrics,
    shift_tables,
    uncertainty_baselines,
)
from caltrain_tf.experiments.shift_tables import NONE
from caltrain_tf.training.strategy import is_multi_worker

COLUMNS = [
    "dataset",
    "corruption",
    "severity",
    "calibrator",
    "metric",
    "value",
]
KEEP = ("float32", "float16", "no")
_METRICS = {
    "accuracy": metrics.accuracy,
    "nll": metrics.negative_log_likelihood,
    "brier": metrics.brier_score,
    "ece": metrics.calibration_error,
}


def find_runs(paths):
    """Returns the folders of finished runs at or below the paths, sorted."""
    paths = [paths] if isinstance(paths, str | os.PathLike) else paths
    found = set()
    for path in map(os.fspath, paths):
        runs = {
            folder
            for folder, _, names in tf.io.gfile.walk(path)
            if {"config.json", "results.json"} <= set(names)
        }
        if not runs:
            raise ValueError(
                "`run_dir` must be the folder of a finished run, with "
                "config.json and results.json, or hold such folders. "
                f"Received: {path!r}"
            )
        found |= runs
    return sorted(found)


def load_run(run_dir, data_dir=None, strategy=None):
    """Returns `(config, data, model, checkpoint)` of a run.

    `checkpoint` is the path of the restored weights relative to `run_dir`.
    """
    settings = config.load(run_dir)
    data = build.data(settings, data_dir)
    # Of a run that trained nothing, there are no checkpoints.
    saved = None if settings.epochs else os.path.join(run_dir, "model.keras")
    with (strategy or tf.distribute.get_strategy()).scope():
        model = build.model(settings, data, saved)
    if saved is not None:
        return settings, data, model, "model.keras"
    # The weights for which the run has results.
    which = {"which": "best"} if settings.get("best") else {}
    checkpoint = training.restore_model(
        os.path.join(run_dir, "checkpoints"), model, **which
    )
    return settings, data, model, os.path.relpath(checkpoint, run_dir)


def shift_options(corruptions, severities, num_examples=None, generated=False):
    """Returns the options that say what to measure; errors name the flags."""
    names = (*all_corruptions.NAMES, *all_corruptions.EXTRA_NAMES)
    for name in corruptions:
        checks.choice("corruptions", name, names)
    for severity in severities:
        checks.choice("severities", severity, all_corruptions.SEVERITIES)
    if num_examples is not None:
        checks.count("num_examples", num_examples)
    return {
        "corruptions": list(corruptions),
        "severities": list(severities),
        "num_examples": num_examples,
        "generated": generated,
    }


def benchmark_run(
    run_dir,
    data_dir=None,
    *,
    corrupted_dir=None,
    generated=False,
    frost_dir=None,
    corruptions=all_corruptions.NAMES,
    severities=all_corruptions.SEVERITIES,
    num_examples=None,
    batch_size=256,
    keep_predictions="float32",
    strategy=None,
    verbose=True,
):
    """Runs or resumes the benchmark of a run and writes its files.

    These are `predictions/<corruption>_<severity>.npz`, `shift.csv`,
    `robustness_metrics.json`, `shift_ece.png`, `shift_accuracy.png` and
    `shift_heatmap.png`.

    Returns:
        `(objective, rows, source)`: the run's objective, the rows of
        `evaluate`, and a description of the corrupted sets.
    """
    settings, data, model, checkpoint = load_run(run_dir, data_dir, strategy)
    sets = data_room.shifted_sets(
        data,
        corrupted_dir=corrupted_dir,
        data_dir=data_dir,
        generated=generated,
        frost_dir=frost_dir,
        names=corruptions,
        severities=severities,
    )
    report = robustness_metrics.Measurements()
    rows = evaluate(
        model,
        data,
        sets=sets,
        corruptions=corruptions,
        severities=severities,
        batch_size=batch_size,
        num_examples=num_examples,
        predictions_dir=os.path.join(run_dir, "predictions"),
        keep_predictions=keep_predictions,
        description={"checkpoint": checkpoint},
        report=report,
        strategy=strategy,
        verbose=verbose,
    )
    name = config.objective(settings)
    if strategy is None or training.is_chief(strategy):
        _write(run_dir, rows, name, report, sets.is_generated)
    return name, rows, sets.source


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
    keep_predictions="float32",
    description=None,
    report=None,
    strategy=None,
    verbose=False,
):
    """Measures a network on its clean test split and under shift.

    The predictions of one corrupted set are in memory at a time. Temperatures
    are fitted to the clean calibration split, never to shifted data.

    Args:
        model: A Keras model; of several replicas, made in the strategy's scope.
        data: An `ImageData` (`ct.data.get`), or an `ArrayData`.
        sets: From `ct.data.shifted_sets`; generated on the fly if None.
        corruptions: Names of corruptions.
        severities: Severities, from 1 to 5.
        batch_size: Size of the global batch, rounded up to a multiple of the
            number of replicas.
        num_examples: Number of first examples of each test set; all if None.
        predictions_dir: Folder of `calibration.npz`, `test.npz` and
            `<corruption>_<severity>.npz`. Stored predictions are used again
            while the sets, `num_examples` and `description` are the same.
        keep_predictions: `"float32"`; `"float16"`, which takes half the space
            and gives the results of rounded predictions; or `"no"`.
        description: What predictions depend on beside that, of JSON types.
        report: `robustness_metrics.Measurements` that are made too.
        strategy: The strategy whose replicas share each batch. With several
            workers the first one writes, and stored sets are computed again.
        verbose: Whether to show progress.

    Returns:
        A data frame with the columns of `shift.csv`. The clean test set has the
        corruption `"none"` and severity 0.
    """
    checks.choice("keep_predictions", keep_predictions, KEEP)
    shift_options(corruptions, severities, num_examples)
    sets = data_room.GeneratedSets(data) if sets is None else sets
    strategy = strategy or tf.distribute.get_strategy()
    count = min(sets.num_examples, num_examples or sets.num_examples)
    store = _Store(
        predictions_dir,
        {
            "source": sets.source,
            "num_examples": count,
            "logits": keep_predictions,
            **(description or {}),
        },
        strategy,
    )
    replicas = strategy.num_replicas_in_sync
    batch_size = -(-batch_size // replicas) * replicas
    # Only `predict` is used.
    with strategy.scope():
        trainer = training.Trainer(
            model,
            losses.NLL(from_logits=True),
            keras.optimizers.SGD(),
            strategy,
            jit_compile=False,
        )

    def predict(source, count=None):
        logits, labels = trainer.predict(
            source if count is None else _first(source, count, batch_size),
            with_labels=True,
        )
        return logits[:count], labels[:count]

    def clean(split):
        found = store.load(split)
        if found is None:
            found = predict(data.eval_input(split, batch_size))
            store.save(split, *found)
        return found

    calibrators = measures.fit_calibrators(*clean("calibration"))
    logits, labels = clean("test")
    rows = measure(
        data.name, NONE, 0, logits[:count], labels[:count], calibrators, report
    )
    shifts = [(name, level) for name in corruptions for level in severities]
    for name, level in tqdm.tqdm(
        shifts,
        "corrupted sets",
        disable=not verbose,
        # Outside a terminal, progress is a new line every ten seconds.
        mininterval=0.1 if sys.stderr.isatty() else 10,
        unit="set",
    ):
        found = store.load(f"{name}_{level}")
        if found is None:
            found = predict(sets.eval_input(name, level, batch_size), count)
            found = (
                prediction_files.rounded(found[0], keep_predictions),
                found[1],
            )
            if keep_predictions != "no":
                store.save(f"{name}_{level}", *found, keep_predictions)
        rows += measure(data.name, name, level, *found, calibrators, report)
    return pd.DataFrame(rows, columns=COLUMNS)


class _Store:
    """Predictions in a folder, or nowhere.

    `shift.json` describes what those of corrupted sets depend on; if it
    differs, they are removed.
    """

    def __init__(self, folder, description, strategy):
        self._folder = None if folder is None else files.as_path(folder)
        self._writes = folder is not None and training.is_chief(strategy)
        # Workers predict together, so all of them must predict the same sets.
        self._reads = folder is not None and not is_multi_worker(strategy)
        if not self._writes:
            return
        path = self._folder / "shift.json"
        text = json.dumps(description, indent=1) + "\n"
        if path.exists() and path.read_text() == text:
            return
        names = (*all_corruptions.NAMES, *all_corruptions.EXTRA_NAMES)
        for name in names:
            for severity in all_corruptions.SEVERITIES:
                file = self._folder / f"{name}_{severity}.npz"
                file.unlink(missing_ok=True)
        files.write_text(path, text)

    def load(self, name):
        """Returns predictions, or None if they are missing or damaged."""
        if not self._reads:
            return None
        try:
            return prediction_files.load(self._folder / f"{name}.npz")
        except (FileNotFoundError, ValueError):
            return None

    def save(self, name, logits, labels, dtype="float32"):
        if self._writes:
            path = self._folder / f"{name}.npz"
            prediction_files.save(path, logits, labels, dtype)


def _first(source, count, batch_size):
    """Returns an input of the batches that hold the first examples."""

    def build(context):
        local = context.num_replicas_in_sync // context.num_input_pipelines
        return source(context).take(-(-count // batch_size) * local)

    return build


def measure(
    dataset, corruption, severity, logits, labels, calibrators, report=None
):
    """Returns the rows of one set, tuples of `COLUMNS`."""
    outputs = {NONE: logits} | {
        name: calibrator.transform(logits)
        for name, calibrator in calibrators.items()
    }
    rows = []
    for calibrator, scaled in outputs.items():
        where = (dataset, corruption, severity, calibrator)
        measured = {
            metric: float(function(scaled, labels, from_logits=True))
            for metric, function in _METRICS.items()
        }
        if report is not None:
            report.add(where, scaled, labels, measured)
        rows += [(*where, metric, value) for metric, value in measured.items()]
    return rows


def read_csv(path):
    """Returns the rows of a `shift.csv`."""
    with files.as_path(path).open() as file:
        # "none" is a name, not a missing value.
        return pd.read_csv(file, keep_default_na=False)[COLUMNS]


def has_shift(run_dir, corruptions, severities, num_examples, generated=False):
    """Returns whether a run already has these results, of either kind of sets.

    The arguments are those of `shift_options`.
    """
    del generated
    folder = files.as_path(run_dir)
    try:
        rows = read_csv(folder / "shift.csv")
        text = (folder / "predictions" / "shift.json").read_text()
    except FileNotFoundError:
        return False
    _, labels = prediction_files.load(folder / "predictions" / "test.npz")
    asked = min(num_examples or len(labels), len(labels))
    there = set(zip(rows["corruption"], rows["severity"], strict=True))
    return json.loads(text)["num_examples"] == asked and all(
        (name, severity) in there
        for name in corruptions
        for severity in severities
    )


def _write(run_dir, rows, name, report, is_generated):
    def path(file):
        return os.path.join(run_dir, file)

    files.write_text(path("shift.csv"), rows.to_csv(index=False))
    measured = pd.DataFrame(report.rows, columns=COLUMNS)
    report = report.report(is_generated) or shift_tables.robustness_report(
        measured, is_generated
    )
    report |= uncertainty_baselines.log_names(measured)
    text = json.dumps(report, indent=2, sort_keys=True)
    files.write_text(path("robustness_metrics.json"), text + "\n")
    ece = shift_tables.means_by_severity(rows, "ece")
    accuracy = shift_tables.means_by_severity(rows, "accuracy")
    accuracy = accuracy[accuracy["calibrator"] == NONE]
    for figure, file in (
        (figures.shift_lines(ece, "ece", name), "shift_ece.png"),
        (figures.shift_lines(accuracy, "accuracy", name), "shift_accuracy.png"),
        (figures.shift_heatmap(rows), "shift_heatmap.png"),
    ):
        figures.save(figure, path(file))
