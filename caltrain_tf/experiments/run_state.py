"""How far the run in a folder is."""

import json
import os

from caltrain_tf import checks
from caltrain_tf import evaluation
from caltrain_tf import files
from caltrain_tf.data import corruptions as corruptions_room


def read_results(folder):
    """Returns what `results.json` holds, or None while there is none."""
    path = files.as_path(os.path.join(folder, "results.json"))
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None


def shift_options(corruptions, severities, num_examples=None):
    """Checks what is to be measured under shift.

    Args:
        corruptions: Names of corruptions.
        severities: Of 1 to 5.
        num_examples: Only the first ones of each test set.

    Returns:
        A dictionary of these.
    """
    names = (*corruptions_room.NAMES, *corruptions_room.EXTRA_NAMES)
    for name in corruptions:
        checks.check_choice("shift_corruptions", name, names)
    for severity in severities:
        checks.check_choice(
            "shift_severities", severity, corruptions_room.SEVERITIES
        )
    if num_examples is not None:
        checks.check_count("shift_examples", num_examples)
    return {
        "corruptions": list(corruptions),
        "severities": list(severities),
        "num_examples": num_examples,
    }


def is_finished(folder, shift=None):
    """Whether a run is trained, and measured under shift if asked.

    Args:
        folder: The run's folder.
        shift: What is asked, of `shift_options`; None for no shift.
    """
    if read_results(folder) is None:
        return False
    return shift is None or _has_shift(folder, **shift)


def epochs_done(folder):
    """The number of epochs that `metrics.jsonl` has."""
    path = files.as_path(os.path.join(folder, "metrics.jsonl"))
    try:
        return len(path.read_bytes().splitlines())
    except FileNotFoundError:
        return 0


def _has_shift(folder, corruptions, severities, num_examples):
    predictions = os.path.join(folder, "predictions")
    try:
        rows = evaluation.read_shift_csv(os.path.join(folder, "shift.csv"))
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
