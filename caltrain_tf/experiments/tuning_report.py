"""What a tuning leaves behind: a table, `trials.csv` and `best.json`."""

import csv
import io
import json
import os
import tempfile

from caltrain_tf.evaluation import within_accuracy
from caltrain_tf.experiments.matrix import run_name
from caltrain_tf.experiments.search_space import as_flags
from caltrain_tf.experiments.search_space import with_params


def tuning_rows(tuning):
    """Returns a flat dictionary for each trial.

    Args:
        tuning: What `tune` returned.

    Returns:
        Rows with the keys `trial`, the parameters' names, `accuracy`, `ece` (of
        the calibration split, None where the trial failed), `seconds` and
        `verdict`: `best`, or why not.
    """
    outcomes = tuning.outcomes
    results = {
        name: outcome.result
        for name, outcome in outcomes.items()
        if outcome.result is not None
    }
    within = dict(
        zip(results, within_accuracy(list(results.values())), strict=True)
    )
    most = max(result["accuracy"] for result in results.values())
    rows = []
    for name, outcome in outcomes.items():
        result = results.get(name, {})
        if name == tuning.best:
            verdict = "best"
        elif name not in results:
            verdict = f"failed: {outcome.reason}"
        elif not within[name]:
            lost = 100 * (most - result["accuracy"])
            verdict = f"gives up {lost:.2f} points of accuracy"
        else:
            more = 100 * (result["ece"] - results[tuning.best]["ece"])
            verdict = f"ECE higher by {more:.2f} points"
        rows.append(
            {
                "trial": name,
                **{p.name: outcome.params[p.name] for p in tuning.space},
                "accuracy": result.get("accuracy"),
                "ece": result.get("ece"),
                "seconds": round(outcome.seconds, 1),
                "verdict": verdict,
            }
        )
    return rows


def tuning_table(tuning):
    """Returns the trials as a table for the terminal, in percent."""
    names = [parameter.name for parameter in tuning.space]
    widths = {name: max(12, len(name) + 2) for name in names}
    lines = [
        "".join(f"{name:>{widths[name]}}" for name in names)
        + f"{'accuracy':>12}{'ECE':>9}  verdict"
    ]
    for row in tuning_rows(tuning):
        cells = [f"{_short(row[name]):>{widths[name]}}" for name in names]
        for key, width in (("accuracy", 12), ("ece", 9)):
            value = row[key]
            text = "-" if value is None else f"{100 * value:.2f}"
            cells.append(f"{text:>{width}}")
        lines.append("".join(cells) + f"  {row['verdict']}")
    return "\n".join(lines)


def write_tuning(config, tuning, output_dir):
    """Writes `trials.csv` and `best.json`.

    Args:
        config: The configuration that was tuned.
        tuning: What `tune` returned.
        output_dir: The study's folder.

    Returns:
        What `best.json` holds: `objective`, `data`, `overrides` (values by
        their path in the configuration), `flags` (the same for a training
        script), `calibration` (the trial's measures on the calibration split),
        `trial` and `config`, the whole configuration with the values in it.
    """
    rows = tuning_rows(tuning)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    _write(os.path.join(output_dir, "trials.csv"), text.getvalue())
    outcome = tuning.outcomes[tuning.best]
    best = {
        "objective": run_name(config),
        "data": config.data.name,
        "trial": tuning.best,
        "overrides": {
            parameter.path: outcome.params[parameter.name]
            for parameter in tuning.space
        },
        "flags": as_flags(tuning.space, outcome.params),
        "calibration": outcome.result,
        "config": with_params(config, tuning.space, outcome.params).to_dict(),
    }
    text = json.dumps(best, indent=2)
    _write(os.path.join(output_dir, "best.json"), text + "\n")
    return json.loads(text)


def _short(value):
    return f"{value:g}" if type(value) is float else str(value)


def _write(path, text):
    # Workers may write the same file at once: each has a name of its own.
    folder, name = os.path.split(path)
    handle, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(temporary, 0o644)
    os.replace(temporary, path)
