"""The shift benchmark of finished runs."""

import json
import os

import tensorflow as tf

from caltrain_tf import checks, evaluation, files, training
from caltrain_tf import data as data_room
from caltrain_tf.experiments import build, figures
from caltrain_tf.experiments import config as settings
from caltrain_tf.experiments.experiment import save_figure


def find_runs(paths):
    """Returns the folders of finished runs, sorted.

    Args:
        paths: A run's folder, a folder of runs (at any depth), or several of
            either; local or in a bucket.

    Returns:
        A list of paths.
    """
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
    """Builds the data and the trained network of a run.

    Args:
        run_dir: The folder of a run.
        data_dir: The folder of TensorFlow Datasets.
        strategy: The strategy in whose scope the network is created; the
            current one if None.

    Returns:
        `(config, data, model, checkpoint)`, where `checkpoint` is the path of
        the checkpoint relative to `run_dir`.
    """
    config = settings.load(run_dir)
    data = build.data(config, data_dir)
    strategy = strategy or tf.distribute.get_strategy()
    with strategy.scope():
        model = build.model(config, data)
    # The weights for which the run has results.
    which = {"which": "best"} if config.get("best") else {}
    checkpoint = training.restore_model(
        os.path.join(run_dir, "checkpoints"), model, **which
    )
    return config, data, model, os.path.relpath(checkpoint, run_dir)


def benchmark_run(
    run_dir,
    data_dir=None,
    *,
    corrupted_dir=None,
    generated=False,
    frost_dir=None,
    corruptions=data_room.corruptions.NAMES,
    severities=data_room.corruptions.SEVERITIES,
    num_examples=None,
    batch_size=256,
    keep_predictions="float32",
    strategy=None,
    verbose=True,
):
    """Runs or resumes the shift benchmark of a run.

    It writes `predictions/<corruption>_<severity>.npz`, `shift.csv`,
    `robustness_metrics.json`, `shift_ece.png`, `shift_accuracy.png` and
    `shift_heatmap.png` to the run's folder.

    Args:
        run_dir: The folder of a finished run.
        data_dir: The folder of TensorFlow Datasets.
        corrupted_dir: A folder of published sets; see `data.shifted_sets`.
        generated: Whether to generate the sets from the clean test images.
        frost_dir: Frost photographs for generated sets.
        corruptions: Names of corruptions.
        severities: Severities, from 1 to 5.
        num_examples: Number of examples to use, from the start of each test
            set; all by default.
        batch_size: Batch size for inference.
        keep_predictions: As in `evaluate_shift`: `"float32"`, `"float16"` or
            `"no"`.
        strategy: From `training.get_strategy`; the current one if None.
        verbose: Whether to show progress.

    Returns:
        `(name, rows, source)`: the name of the run's objective, the rows of
        `evaluate_shift`, and a description of the corrupted sets.
    """
    config, data, model, checkpoint = load_run(run_dir, data_dir, strategy)
    sets = data_room.shifted_sets(
        data,
        corrupted_dir=corrupted_dir,
        data_dir=data_dir,
        generated=generated,
        frost_dir=frost_dir,
        names=corruptions,
        severities=severities,
    )
    rows = evaluation.evaluate_shift(
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
        strategy=strategy,
        verbose=verbose,
    )
    if strategy is None or training.is_chief(strategy):
        name = settings.objective(config)
        _write(run_dir, rows, name, sets.is_generated)
    return settings.objective(config), rows, sets.source


def shift_options(corruptions, severities, num_examples=None, generated=False):
    """Checks options of the shift benchmark and returns them.

    Args:
        corruptions: Names of corruptions.
        severities: Severities, from 1 to 5.
        num_examples: Number of examples to use, from the start of each test
            set; all by default.
        generated: Whether to generate the sets from the clean test images.

    Returns:
        A dictionary of JSON types, with arguments of `benchmark_run`.
    """
    room = data_room.corruptions
    for name in corruptions:
        checks.choice(
            "shift_corruptions", name, (*room.NAMES, *room.EXTRA_NAMES)
        )
    for severity in severities:
        checks.choice("shift_severities", severity, room.SEVERITIES)
    if num_examples is not None:
        checks.count("shift_examples", num_examples)
    return {
        "corruptions": list(corruptions),
        "severities": list(severities),
        "num_examples": num_examples,
        "generated": generated,
    }


def has_shift(run_dir, corruptions, severities, num_examples, generated=False):
    """Returns whether a run already has results of the shift benchmark.

    Args:
        run_dir: The folder of a run.
        corruptions: See `shift_options`.
        severities: See `shift_options`.
        num_examples: See `shift_options`.
        generated: Results on either kind of sets count.
    """
    predictions = os.path.join(run_dir, "predictions")
    try:
        rows = evaluation.read_shift_csv(os.path.join(run_dir, "shift.csv"))
        path = files.as_path(os.path.join(predictions, "shift.json"))
        examples = json.loads(path.read_text())["num_examples"]
    except FileNotFoundError:
        return False
    _, labels = evaluation.load_predictions(
        os.path.join(predictions, "test.npz")
    )
    asked = len(labels) if num_examples is None else num_examples
    there = {(row["corruption"], row["severity"]) for row in rows}
    return examples == min(asked, len(labels)) and all(
        (name, severity) in there
        for name in corruptions
        for severity in severities
    )


def comparison_table(runs, metric="ece"):
    """Returns a table of objectives under shift, means ± errors over seeds.

    Args:
        runs: Pairs of an objective's name and the rows of one of its runs.
        metric: Metric of the rows, shown in percent.
    """
    calibrators = list(dict.fromkeys(row["calibrator"] for row in runs[0][1]))
    severities = sorted({row["severity"] for row in runs[0][1]})
    heads = [f"severity {level}" if level else "clean" for level in severities]
    lines = [
        f"{f'{metric} (%)':<40}" + "".join(f"{head:>15}" for head in heads)
    ]
    for calibrator in calibrators:
        rows = evaluation.compare_runs(runs, metric, calibrator)
        for objective in dict.fromkeys(name for name, _ in runs):
            cells = [row for row in rows if row["objective"] == objective]
            label = f"{objective}, {calibrator} ({cells[0]['count']} runs)"
            texts = [
                f"{100 * row['mean']:.2f}"
                + (f" ± {100 * row['error']:.2f}" if row["count"] > 1 else "")
                for row in cells
            ]
            lines.append(
                f"{label:<40}" + "".join(f"{text:>15}" for text in texts)
            )
    return "\n".join(lines)


def _write(run_dir, rows, name, is_generated):
    def path(file):
        return os.path.join(run_dir, file)

    files.write_text(path("shift.csv"), evaluation.shift_csv(rows))
    report = evaluation.robustness_report(rows, is_generated)
    text = json.dumps(report, indent=2, sort_keys=True)
    files.write_text(path("robustness_metrics.json"), text + "\n")
    ece = evaluation.means_by_severity(rows, "ece")
    save_figure(figures.shift_lines(ece, "ece", name), path("shift_ece.png"))
    accuracy = [
        row
        for row in evaluation.means_by_severity(rows, "accuracy")
        if row["calibrator"] == "none"
    ]
    save_figure(
        figures.shift_lines(accuracy, "accuracy", name),
        path("shift_accuracy.png"),
    )
    save_figure(figures.shift_heatmap(rows), path("shift_heatmap.png"))
