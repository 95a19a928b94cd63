"""Hyperparameter tuning as in the paper: one parameter after the other.

A trial is an ordinary run, measured on the calibration split.
"""

import copy
import json
import math
import os
from typing import NamedTuple

import pandas as pd

from caltrain_tf import checks, files
from caltrain_tf.experiments import (
    build,
    measures,
    prediction_files,
    statistics,
    study,
)
from caltrain_tf.experiments import config as settings

_MEASURES = ("accuracy", "ece", "nll")
# The paper tunes these options of a loss first.
_FIRST = {"threshold": 0, "temperature": 1}


class Parameter(NamedTuple):
    """A setting that is tuned."""

    name: str  # As in `config.search`.
    key: str  # In the configuration, such as `loss.beta`.
    values: tuple  # To try, in this order.
    start: bool | float | str  # The value of the first trials.


def search_space(config, data_dir=None):
    """Returns the parameters to tune, in the paper's order.

    Options of `config.search` that neither loss has are ignored.
    """
    options, secondary, keys = config.loss.options, config.loss.secondary, {}
    for loss in filter(None, (secondary, config.loss.primary)):
        own = options.get(loss, {})
        for name in sorted(own, key=lambda n: _FIRST.get(n, 2)):
            keys.setdefault(name, f"loss.options.{loss}.{name}")
    if secondary is not None:
        keys["beta"] = "loss.beta"
    keys["l2"] = "optimizer.l2"
    known = {name for loss in options for name in options[loss]}
    known = sorted({*known, *options, "beta", "l2"})
    for name in config.search:
        checks.choice("--config.search", name, known)
    search = {**config.search, **config.search.get(secondary or "", {})}
    if secondary in ("avuc", "avuc_gs") and search.get("threshold"):
        # An entropy in nats: shares of log K, the largest one of K classes.
        unit = math.log(build.data(config, data_dir).num_classes)
        search["threshold"] = [round(v * unit, 4) for v in search["threshold"]]
    space = []
    for name, key in keys.items():
        default = settings.flatten(config)[key]
        kind = float if isinstance(default, float) else lambda value: value
        try:
            values = tuple(dict.fromkeys(map(kind, search.get(name, ()))))
        except (TypeError, ValueError) as error:
            text = f"--config.search.{name} must hold numbers: {error}"
            raise ValueError(text) from error
        if values:
            start = values[0] if default is None else default
            space.append(Parameter(name, key, values, start))
        for value in values:  # Wrong ones end here, not in the log of a trial.
            trial = with_params(config, space, {name: value})
            settings.check(trial)
            build.loss(trial)
    if not space:
        raise ValueError(
            f"--config.search must have values to try for one of {list(keys)}. "
            f"Received: {dict(config.search)}"
        )
    return space


def tune(configs, spaces, output_dirs, pool, flags=()):
    """Tunes objectives, each with a configuration, parameters and a folder.

    Returns the trials of each objective: dictionaries of `trial` (a name),
    `params`, measures on the calibration split (NaN if it failed), `failure`.
    """
    results = [[] for _ in configs]
    objectives = list(zip(configs, spaces, output_dirs, results, strict=True))
    for stage in range(max(map(len, spaces))):
        runs = {}
        for config, space, output_dir, rows in objectives:
            for params in _candidates(space, stage, rows):
                name = trial_name(params)
                folder = os.path.join(output_dir, "trials", name)
                own = with_params(config, space, params)
                title = f"{settings.objective(own)} {name}"
                run = study.make_run(title, own, folder, flags)
                runs[run] = rows, {"trial": name, "params": params}
        failures = study.do_runs(list(runs), pool, measure_trial)
        for run, (rows, row) in runs.items():
            rows.append(row | _measured(run, failures.get(run)))
    return results


def best_trial(rows):
    """Returns the row of the best trial, by the rule of the paper."""
    if all(row["failure"] for row in rows):
        raise ValueError(
            "All trials failed; the same command tries again. "
            + "; ".join(sorted({row["failure"] for row in rows}))
        )
    return statistics.best_within_accuracy(rows)


def measure_trial(folder):
    """Returns the measures of a run on its calibration split."""
    path = os.path.join(folder, "predictions", "calibration.npz")
    return measures.measure(*prediction_files.load(path), _MEASURES)


def with_params(config, space, params):
    """Returns the configuration of a trial, in which there is no `search`."""
    config = copy.deepcopy(config)
    keys = {parameter.name: parameter.key for parameter in space}
    settings.override(config, {keys[name]: params[name] for name in params})
    with config.unlocked():
        del config.search
    return config


def trial_name(params):
    """Returns the name of a trial and its folder: `beta=1.0_l2=0.0002`."""
    return "_".join(f"{name}={value}" for name, value in params.items())


def trials_table(rows):
    """Returns the trials as a `pandas.DataFrame`, with a verdict on each."""
    best, keys = best_trial(rows), ("accuracy", "ece", "failure")
    table = pd.DataFrame(
        {"trial": row["trial"], **row["params"], **{k: row[k] for k in keys}}
        for row in rows
    ).rename(columns={"failure": "verdict"})
    low = ~statistics.within_accuracy(table["accuracy"])
    table.loc[low & (table["verdict"] == ""), "verdict"] = "accuracy too low"
    table.loc[rows.index(best), "verdict"] = "best"
    return table


def write_tuning(config, space, rows, output_dir):
    """Writes `trials.csv` and `best.json`, and returns the latter."""
    text = trials_table(rows).to_csv(index=False, lineterminator="\n")
    files.write_text(os.path.join(output_dir, "trials.csv"), text)
    row = best_trial(rows)
    overrides = {p.key: row["params"][p.name] for p in space}
    best = {
        "objective": settings.objective(config),
        "data": config.data.name,
        "trial": row["trial"],
        "overrides": overrides,
        "flags": " ".join(f"--config.{k}={v}" for k, v in overrides.items()),
        "calibration": {key: row[key] for key in _MEASURES},
        "config": with_params(config, space, row["params"]).to_dict(),
    }
    text = json.dumps(best, indent=2)
    files.write_text(os.path.join(output_dir, settings.BEST), text + "\n")
    return best


def _candidates(space, stage, rows):
    """Returns the parameters of new trials, which vary that of the stage."""
    if stage >= len(space) or (rows and all(row["failure"] for row in rows)):
        return []  # The other objectives go on.
    params = {parameter.name: parameter.start for parameter in space}
    if rows:
        params = best_trial(rows)["params"]
    name, _, values, _ = space[stage]
    new = [{**params, name: value} for value in values]
    known = [row["params"] for row in rows]
    return [candidate for candidate in new if candidate not in known]


def _measured(run, outcome):
    """Returns the measures of a trial, and how it failed."""
    if outcome is not None:
        failure = f"{outcome.failure}: {outcome.last_line}"
        return dict.fromkeys(_MEASURES, math.nan) | {"failure": failure}
    row = measure_trial(run.folder)
    finite = math.isfinite(row["ece"])
    return row | {"failure": "" if finite else "the result is not finite"}
