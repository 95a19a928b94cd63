"""The shift benchmark: networks of finished runs on corrupted test sets."""

import json
import os
import sys

import keras
import pandas as pd
import tensorflow as tf
import tqdm

from caltrain_tf import checks, files, losses, training
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
    uncertainty_baselines,
)
from caltrain_tf.training.strategy import is_multi_worker

COLUMNS = [
    *("dataset", "corruption", "severity", "calibrator", "metric", "value")
]
# The clean test set among corruptions, and unscaled outputs among calibrators.
NONE = "none"
KEEP = ("float32", "float16", "no")
# Titles, factors and digits in tables.
_METRICS = {
    "ece": ("ECE (%)", 100, 2),
    "accuracy": ("accuracy (%)", 100, 2),
    "nll": ("NLL", 1, 3),
    "brier": ("Brier score", 1, 3),
}
_NOTE = """\
± is one standard error within corruptions (Masson and Loftus): how much one
calibrator is ahead of another varies by that over corruptions. It is pooled, so
that all calibrators of a severity share it; how hard a corruption is does not
count."""
# Mean errors of AlexNet on ImageNet-C, relative to which mCE is defined, and on
# clean images; Hendrycks and Dietterich, 2019, appendix C.
_ALEXNET_ERRORS = (
    *(0.886, 0.894, 0.923, 0.820, 0.826, 0.786, 0.798, 0.867),
    *(0.827, 0.819, 0.565, 0.853, 0.646, 0.718, 0.607),
)
_ALEXNET_CLEAN_ERROR = 0.4348


def find_runs(paths):
    """Returns the folders of finished runs at or below the paths, sorted."""
    found = set()
    for path in paths:
        runs = {
            folder
            for folder, _, names in tf.io.gfile.walk(path)
            if {"config.json", "results.json"} <= set(names)
        }
        if not runs:
            raise ValueError(
                "--run_dir must be the folder of a finished run, with "
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
    strategy=None,
    verbose=True,
    **options,
):
    """Runs or resumes the benchmark of a run and writes its files.

    These are `predictions/<corruption>_<severity>.npz`, `shift.csv`,
    `robustness_metrics.json`, `shift_ece.png`, `shift_accuracy.png` and
    `shift_heatmap.png`. `options` are those of `evaluate`.

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
        predictions_dir=os.path.join(run_dir, "predictions"),
        description={"checkpoint": checkpoint},
        report=report,
        strategy=strategy,
        verbose=verbose,
        **options,
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
    shift_options(corruptions, severities)
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

    def clean(split):
        def predict():
            source = data.eval_input(split, batch_size)
            return trainer.predict(source, with_labels=True)

        return store.get(split, predict)

    def shifted(name, level):
        def predict():
            source = sets.eval_input(name, level, batch_size)
            first = _first(source, count, batch_size)
            logits, labels = trainer.predict(first, with_labels=True)
            logits = prediction_files.rounded(logits[:count], keep_predictions)
            return logits, labels[:count]

        return store.get(f"{name}_{level}", predict, keep_predictions)

    calibrators = measures.fit_calibrators(*clean("calibration"))
    test = [array[:count] for array in clean("test")]
    rows = measure(data.name, NONE, 0, *test, calibrators, report)
    for name, level in tqdm.tqdm(
        [(name, level) for name in corruptions for level in severities],
        "corrupted sets",
        disable=not verbose,
        # Outside a terminal, progress is a new line every ten seconds.
        mininterval=0.1 if sys.stderr.isatty() else 10,
        unit="set",
    ):
        found = shifted(name, level)
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
        for file in list(self._folder.glob("*_[1-5].npz")):
            file.unlink()
        files.write_text(path, text)

    def get(self, name, predict, dtype="float32"):
        """Returns stored predictions, or predicts if missing or damaged."""
        if self._reads:
            try:
                return prediction_files.load(self._folder / f"{name}.npz")
            except (FileNotFoundError, ValueError):
                pass
        logits, labels = predict()
        if self._writes and dtype != "no":
            path = self._folder / f"{name}.npz"
            prediction_files.save(path, logits, labels, dtype)
        return logits, labels


def _first(source, count, batch_size):
    """Returns an input of the batches that hold the first examples."""

    def build_input(context):
        local = context.num_replicas_in_sync // context.num_input_pipelines
        return source(context).take(-(-count // batch_size) * local)

    return build_input


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
        names = ("accuracy", "nll", "brier", "ece")
        measured = measures.measure(scaled, labels, names)
        if report is not None:
            report.add(where, scaled, labels, measured)
        rows += [(*where, metric, value) for metric, value in measured.items()]
    return rows


def has_shift(run_dir, corruptions, severities, num_examples, **_):
    """Returns whether a run already has these results, of either kind of sets.

    The arguments are those of `shift_options`.
    """
    folder = files.as_path(run_dir)
    if not (folder / "shift.csv").exists():
        return False
    with (folder / "shift.csv").open() as file:
        rows = pd.read_csv(file, keep_default_na=False)
    about = json.loads((folder / "predictions" / "shift.json").read_text())
    _, labels = prediction_files.load(folder / "predictions" / "test.npz")
    asked = min(num_examples or len(labels), len(labels))
    there = set(zip(rows["corruption"], rows["severity"], strict=True))
    wanted = {(name, level) for name in corruptions for level in severities}
    return about["num_examples"] == asked and wanted <= there


def _write(run_dir, rows, name, report, is_generated):
    def path(file):
        return os.path.join(run_dir, file)

    files.write_text(path("shift.csv"), rows.to_csv(index=False))
    measured = pd.DataFrame(report.rows, columns=COLUMNS)
    report = report.report(is_generated) or robustness_report(
        measured, is_generated
    )
    report |= uncertainty_baselines.log_names(measured)
    text = json.dumps(report, indent=2, sort_keys=True)
    files.write_text(path("robustness_metrics.json"), text + "\n")
    ece = statistics.shift_by_calibrator(rows)
    accuracy = statistics.shift_by_calibrator(rows, "accuracy")
    accuracy = accuracy[accuracy["calibrator"] == NONE]
    for figure, file in (
        (figures.shift_lines(ece, "ece", name), "shift_ece.png"),
        (figures.shift_lines(accuracy, "accuracy", name), "shift_accuracy.png"),
        (figures.shift_heatmap(rows), "shift_heatmap.png"),
    ):
        figures.save(figure, path(file))


def severity_table(rows):
    """Returns a table for the terminal: means over corruptions by severity."""
    lines = {}
    for metric, (title, factor, digits) in _METRICS.items():
        for row in statistics.shift_by_calibrator(rows, metric).itertuples():
            if metric == "accuracy" and row.calibrator != NONE:
                continue  # Scaling does not change it.
            label = title
            if metric != "accuracy":
                label += f", {figures.calibrator_label(row.calibrator)}"
            text = f"{factor * row.mean:.{digits}f}"
            if metric == "ece" and row.error == row.error:
                text += f" ± {factor * row.error:.{digits}f}"
            lines.setdefault(label, {})[_head(row.severity)] = text
    text = _to_text(lines, "mean over corruptions")
    return f"{text}\n{_NOTE}" if "±" in text else text


def comparison_table(rows, metric="ece"):
    """Returns a table of objectives under shift, means ± errors over runs.

    `rows` have `objective` and `seed`, which tells runs apart.
    """
    lines = {}
    for calibrator in rows["calibrator"].unique():
        means = statistics.shift_by_objective(rows, calibrator, metric)
        for row in means.itertuples():
            label = f"{row.objective}, {calibrator} ({row.count} runs)"
            text = f"{100 * row.mean:.2f}"
            if row.count > 1:
                text += f" ± {100 * row.error:.2f}"
            lines.setdefault(label, {})[_head(row.severity)] = text
    return _to_text(lines, f"{metric} (%)")


def _head(severity):
    return f"severity {severity}" if severity else "clean"


def _to_text(lines, corner):
    table = pd.DataFrame.from_dict(lines, orient="index").fillna("")
    return table.rename_axis(corner, axis="columns").to_string(col_space=14)


def robustness_report(rows, is_generated=False):
    """Returns the contents of `robustness_metrics.json`.

    Keys are those of the reports of robustness_metrics, with the calibrator's
    name after the metric's: `cifar10/ece`, `cifar10_c/ece/mean`,
    `cifar10_c/ece_ts/std`. For ImageNet there are also `imagenet_c/mce` and its
    parts, if `rows` has all published sets. The metrics of `rows` have the
    names and definitions of robustness_metrics.
    """
    suffix = ("_" + rows["calibrator"]).where(rows["calibrator"] != NONE, "")
    rows = rows.assign(name=rows["metric"] + suffix)
    report = {
        f"{row.dataset}/{row.name}": row.value
        for row in rows[rows["corruption"] == NONE].itertuples(index=False)
    }
    shifted = rows[rows["corruption"].isin(all_corruptions.NAMES)]
    for (dataset, name), here in shifted.groupby(["dataset", "name"]):
        report |= {
            f"{dataset}_c/{name}/mean": float(here["value"].mean()),
            f"{dataset}_c/{name}/std": float(here["value"].std(ddof=0)),
            f"{dataset}_c/{name}/count": len(here),
        }
    accuracy = rows[rows["name"] == "accuracy"].groupby("corruption")["value"]
    is_whole = (accuracy.count().reindex(all_corruptions.NAMES) == 5).all()
    if (rows["dataset"] == "imagenet").all() and is_whole and not is_generated:
        report |= _corruption_errors(1 - accuracy.mean())
    return report


def _corruption_errors(errors):
    alexnet = pd.Series(_ALEXNET_ERRORS, all_corruptions.NAMES)
    shifted = errors[alexnet.index]
    parts = {
        "ce": shifted / alexnet,
        "relative_ce": (shifted - errors[NONE])
        / (alexnet - _ALEXNET_CLEAN_ERROR),
    }
    report = {
        f"imagenet_c/{name}/{key}": float(value)
        for key, values in parts.items()
        for name, value in values.items()
    }
    report["imagenet_c/mce"] = float(parts["ce"].mean())
    report["imagenet_c/relative_mce"] = float(parts["relative_ce"].mean())
    return report
