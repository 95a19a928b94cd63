"""Runs in, rows out."""

import json
import math
import os

import ml_collections

from caltrain_tf import evaluation
from caltrain_tf import metrics
from caltrain_tf import posthoc
from caltrain_tf.experiments.flags import run_name
from caltrain_tf.report.rows import Rows
from caltrain_tf.report.rows import is_rows_folder
from caltrain_tf.report.rows import read_rows
from caltrain_tf.report.settings import hyperparameters
from caltrain_tf.report.settings import setting_names

_DIRICHLET = "dirichlet"
# In the order of the paper's tables; others come after.
_PRIMARIES = ("nll", "focal", "mse")
_SECONDARIES = (
    "",
    "avuc",
    "avuc_gs",
    "mmce",
    "sb_ece",
    "s_avuc",
    "sb_marginal_ece",
)


def collect(paths, *, dirichlet=False, progress=lambda text: None):
    """Reads runs as the rows of a report.

    What cannot be read, or is not finished, is left out, and listed.

    Args:
        paths: Folders of runs, at any depth, or of rows.
        dirichlet: Whether to fit Dirichlet calibration where `results.json`
            does not have it already.
        progress: Called with a text for every run.

    Returns:
        A `Rows`, sorted, without repetitions.
    """
    paths = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    collected = Rows([], [], [], [])
    origins, runs, seen = {}, [], set()
    for path in map(os.fspath, paths):
        folders = [path] if is_rows_folder(path) else _find(path)
        # One of them may be inside another.
        new = [f for f in folders if os.path.realpath(f) not in seen]
        seen.update(map(os.path.realpath, new))
        for folder in new:
            if is_rows_folder(folder):
                rows = read_rows(folder)
                _check_unique(origins, rows.results, folder)
                _extend(collected, rows)
            else:
                _read_run(folder, runs, collected.left_out)
    names = setting_names([config for _, config, _ in runs])
    for number, (run, setting) in enumerate(zip(runs, names, strict=True), 1):
        progress(f"reading run {number} of {len(runs)}: {run[0]}")
        rows = _run_rows(*run, setting, dirichlet)
        _check_unique(origins, rows.results, run[0])
        _extend(collected, rows)
    if not collected.results:
        reasons = "; ".join(
            f"{row['folder']}: {row['reason']}" for row in collected.left_out
        )
        raise ValueError(f"No finished run could be read. Received: {reasons}")
    return _sorted(collected)


def reliability_rows(splits):
    """Reliability of a run's test split before and after scaling.

    Args:
        splits: `(logits, labels)` of `"calibration"` and `"test"`.

    Returns:
        Dictionaries with `calibrator`, `bin`, `confidence`, `accuracy` and
        `count`, of 15 bins of equal width; NaN where a bin is empty.
    """
    calibrators = evaluation.fit_calibrators(*splits["calibration"])
    logits, labels = splits["test"]
    outputs = {"none": logits}
    for name, calibrator in calibrators.items():
        outputs[name] = calibrator.transform(logits)
    rows = []
    for name, scaled in outputs.items():
        curve = metrics.reliability_curve(
            scaled, labels, binning="equal_width", from_logits=True
        )
        rows += [
            {
                "calibrator": name,
                "bin": index,
                "confidence": float(confidence),
                "accuracy": float(accuracy),
                "count": int(count),
            }
            for index, (confidence, accuracy, count) in enumerate(
                zip(*curve, strict=True)
            )
        ]
    return rows


def dirichlet_results(splits):
    """Accuracy, ECE and NLL of the test split after Dirichlet calibration.

    Args:
        splits: As of `reliability_rows`.

    Returns:
        `accuracy_dirichlet`, `ece_dirichlet` and `nll_dirichlet`.
    """
    calibrator = posthoc.DirichletCalibration().fit(*splits["calibration"])
    logits, labels = splits["test"]
    measured = evaluation.measure(calibrator.transform(logits), labels)
    return {
        f"{key}_{_DIRICHLET}": measured[key]
        for key in ("accuracy", "ece", "nll")
    }


def _find(path):
    folders = sorted(
        folder
        for folder, _, files in os.walk(path)
        if {"config.json", "results.json"} & set(files)
    )
    if not folders:
        raise ValueError(
            "`paths` must be folders of runs, with config.json and "
            "results.json, or hold such folders, or be folders of rows, with "
            f"results.csv. Received: {path!r}"
        )
    return folders


def _read_run(folder, runs, left_out):
    """Appends to `runs`, or where the run is not whole to `left_out`."""
    try:
        config = _read_json(folder, "config.json")
        results = _read_json(folder, "results.json")
        # What is read of it later.
        setting_names([config])
        hyperparameters(config)
        int(config["seed"])
        for key in ("accuracy", "ece"):
            results[key]
        for key, value in results.items():
            if not isinstance(value, int | float) or not math.isfinite(value):
                raise ValueError(f"{key} is {value!r} in results.json")
    except FileNotFoundError as error:
        reason = f"not finished: no {os.path.basename(error.filename)}"
    except KeyError as error:
        reason = f"config.json or results.json has no {error}"
    except (AttributeError, OSError, TypeError, ValueError) as error:
        reason = f"not readable: {error}"
    else:
        runs.append((folder, config, results))
        return
    left_out.append({"folder": folder, "part": "run", "reason": reason})


def _read_json(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return json.load(file)


def _run_rows(folder, config, results, setting, dirichlet):
    loss = config["loss"]
    key = {
        "setting": setting,
        "objective": run_name(ml_collections.ConfigDict(config)),
        "seed": int(config["seed"]),
    }
    left_out = []

    def attempt(part, function):
        try:
            return function()
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            left_out.append(
                {"folder": folder, "part": part, "reason": str(error)}
            )
            return None

    splits = attempt("predictions", lambda: _splits(folder))
    reliability, more = None, None
    if splits is not None:
        reliability = attempt("reliability", lambda: reliability_rows(splits))
        if dirichlet and f"ece_{_DIRICHLET}" not in results:
            more = attempt(_DIRICHLET, lambda: dirichlet_results(splits))
    path = os.path.join(folder, "shift.csv")
    shift = attempt("shift", lambda: evaluation.read_shift_csv(path))
    result = {
        "setting": setting,
        "objective": key["objective"],
        "primary": loss["primary"],
        "secondary": loss.get("secondary") or "",
        "interleaved": bool(config["interleaved"]["enabled"]),
        "seed": key["seed"],
        "hyperparameters": hyperparameters(config),
        **{key: float(value) for key, value in results.items()},
        **(more or {}),
    }
    return Rows(
        [result],
        [{**key, **row} for row in reliability or ()],
        [{**key, **row} for row in shift or ()],
        left_out,
    )


def _splits(folder):
    predictions = os.path.join(folder, "predictions")
    return {
        split: evaluation.load_predictions(
            os.path.join(predictions, f"{split}.npz")
        )
        for split in ("calibration", "test")
    }


def _extend(rows, more):
    for part, new in zip(rows, more, strict=True):
        part.extend(new)


def _check_unique(origins, results, folder):
    for row in results:
        run = _run(row)
        if run in origins:
            raise ValueError(
                f"`paths` must hold a run once. Received: {row['objective']} "
                f"with seed {row['seed']} ({row['setting']}) in "
                f"{origins[run]!r} and in {folder!r}"
            )
        origins[run] = folder


def _sorted(rows):
    def place(names, name):
        return (names.index(name), "") if name in names else (len(names), name)

    results = sorted(
        rows.results,
        key=lambda row: (
            row["setting"],
            place(_PRIMARIES, row["primary"]),
            place(_SECONDARIES, row["secondary"]),
            row["interleaved"],
            row["seed"],
        ),
    )
    order = {_run(row): index for index, row in enumerate(results)}

    def by_run(part):
        # Rows of a run that is not there have no place on the page.
        known = (row for row in part if _run(row) in order)
        return sorted(known, key=lambda row: order[_run(row)])

    left_out = sorted(
        rows.left_out, key=lambda row: (row["folder"], row["part"])
    )
    return Rows(results, by_run(rows.reliability), by_run(rows.shift), left_out)


def _run(row):
    return row["setting"], row["objective"], row["seed"]
