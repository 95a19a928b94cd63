"""How far the run in a folder is."""

import json
import os

from caltrain_tf import evaluation


def read_results(folder):
    """Returns what `results.json` holds, or None while there is none."""
    try:
        with open(os.path.join(folder, "results.json"), encoding="utf-8") as f:
            return json.load(f)
    except FileNotFoundError:
        return None


def is_finished(folder, shift=None):
    """Whether a run is trained, and measured under shift if asked.

    Args:
        folder: The run's folder.
        shift: What is asked: a dictionary of `corruptions`, `severities` and
            `num_examples`, as of `shift.benchmark_run`; None for no shift.
    """
    if read_results(folder) is None:
        return False
    return shift is None or _has_shift(folder, **shift)


def epochs_done(folder):
    """The number of epochs that `metrics.jsonl` has."""
    try:
        with open(os.path.join(folder, "metrics.jsonl"), "rb") as file:
            return sum(1 for _ in file)
    except FileNotFoundError:
        return 0


def _has_shift(folder, corruptions, severities, num_examples):
    predictions = os.path.join(folder, "predictions")
    try:
        rows = evaluation.read_shift_csv(os.path.join(folder, "shift.csv"))
        with open(os.path.join(predictions, "shift.json")) as file:
            examples = json.load(file)["num_examples"]
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
