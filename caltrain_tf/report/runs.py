"""One run in, its rows out."""

import json
import math
import os

import ml_collections

from caltrain_tf import evaluation
from caltrain_tf.experiments.config import run_name
from caltrain_tf.report.outputs import dirichlet_results
from caltrain_tf.report.outputs import load_splits
from caltrain_tf.report.outputs import reliability_rows
from caltrain_tf.report.rows import Rows
from caltrain_tf.report.settings import hyperparameters
from caltrain_tf.report.settings import setting_names


def find_folders(path):
    """Returns the folders under a path that look like runs, sorted.

    Args:
        path: A run's folder, or a folder of runs at any depth. Unfinished runs
            are among them.
    """
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


def read_run(folder, runs, left_out):
    """Reads what every run has to have.

    Args:
        folder: Of the run.
        runs: `(folder, config, results)` is appended where the run is whole.
        left_out: Why it is not is appended where it is not.
    """
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


def run_rows(folder, config, results, setting, dirichlet=False):
    """Returns the `Rows` of a run.

    Args:
        folder: Of the run; where it has no predictions or no `shift.csv`, the
            rows of them are absent.
        config: What its `config.json` holds.
        results: What its `results.json` holds.
        setting: Of `setting_names`.
        dirichlet: Whether to fit Dirichlet calibration where `results` does
            not have it.
    """
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

    splits = attempt("predictions", lambda: load_splits(folder))
    reliability, more = None, None
    if splits is not None:
        reliability = attempt("reliability", lambda: reliability_rows(splits))
        if dirichlet and "ece_dirichlet" not in results:
            more = attempt("dirichlet", lambda: dirichlet_results(splits))
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
