"""Hyperparameter tuning: the paper's sequential search, and a joint search.

A trial is an ordinary run, measured on the calibration split. Results are read
from the folders of the trials: finished trials are not run again, and failed
trials are run again the next time.
"""

import ast
import copy
import dataclasses
import json
import math
import os

import pandas as pd

from caltrain_tf import checks, files, metrics
from caltrain_tf.experiments import build, prediction_files, statistics, study
from caltrain_tf.experiments import config as settings

STRATEGIES = ("sequential", "joint")
_JOINT_TRIALS = 20
# If so many proposals in a row are known, there are no new values to try.
_MOST_PROPOSALS = 100
# The paper tunes these options of a loss first.
_FIRST = ("threshold", "temperature")
# Losses whose thresholds are entropies in nats.
_IN_NATS = ("avuc", "avuc_gs")


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A setting that is tuned.

    Attributes:
        name: As in `config.search`: `threshold`, `temperature`, `beta`, `l2`;
            for other settings, their key.
        key: Key in the configuration, such as `loss.beta`.
        values: The values to try, in this order.
        default: The value in the configuration, which may be None.
    """

    name: str
    key: str
    values: tuple
    default: bool | float | str | None


def search_space(config, others=(), data_dir=None):
    """Returns the parameters to tune, in the paper's order.

    The order is: the threshold of the secondary loss, its temperature, its
    other options, the options of the primary loss, the weight beta of the
    secondary loss, and the weight decay l2. `config.search` holds the values to
    try; options that neither loss has are ignored. The threshold of AvUC is an
    entropy in nats: its values are multiplied by log K, the largest entropy of
    K classes.

    Args:
        config: The configuration, as in `configs/`.
        others: Other settings to tune after these, texts of the form
            `batch_size=64,256`.
        data_dir: The folder of TensorFlow Datasets, needed to look up K.

    Returns:
        A list of `Parameter`.
    """
    options, keys = config.loss.options, {}
    for loss in filter(None, (config.loss.secondary, config.loss.primary)):
        names = sorted(options.get(loss) or (), key=_place)
        for name in names:
            keys.setdefault(name, f"loss.options.{loss}.{name}")
    if config.loss.secondary is not None:
        keys["beta"] = "loss.beta"
    keys["l2"] = "optimizer.l2"
    known = {name for loss in options for name in options[loss]}
    for name in config.search:
        checks.choice("--config.search", name, sorted({*known, "beta", "l2"}))

    tried = {}
    for name, key in keys.items():
        if not (values := config.search.get(name)):
            continue
        if name == "threshold" and config.loss.secondary in _IN_NATS:
            unit = math.log(build.data(config, data_dir).num_classes)
            values = [round(value * unit, 4) for value in values]
        tried[name] = key, values
    for text in others:
        key, _, values = text.partition("=")
        if key in (known_key for known_key, _ in tried.values()):
            raise ValueError(
                f"--also: {key} is tuned by `config.search`. Received: {text!r}"
            )
        tried[key] = key, list(map(_literal, values.split(",")))
    if not tried:
        raise ValueError(
            f"--config.search must have values to try for one of {list(keys)}. "
            f"Received: {dict(config.search)}"
        )
    return [
        Parameter(name, key, *_checked(config, key, values))
        for name, (key, values) in tried.items()
    ]


def tune(
    config,
    output_dir,
    pool,
    *,
    strategy="sequential",
    others=(),
    trials=None,
    data_dir=None,
    flags=(),
    stream=None,
):
    """Tunes the hyperparameters of an objective.

    `"sequential"` is the paper's search: it tunes one parameter after the other
    (see `search_space`), with the other parameters at the values of the best
    trial so far. `"joint"` tunes all parameters together: the tree-structured
    Parzen estimator of Optuna proposes values between the smallest and the
    largest ones. The best trial has the lowest ECE among the trials that give
    up less than 1% accuracy relative to the most accurate trial, both on the
    calibration split.

    Args:
        config: The configuration, as in `configs/`.
        output_dir: The folder of the tuning; trials are runs in `trials/`.
        pool: A `LocalPool` or a `RayPool`.
        strategy: `"sequential"` or `"joint"`.
        others: See `search_space`.
        trials: The largest number of trials in total; by default all values of
            a sequential search, and 20 trials of a joint search.
        data_dir: The folder of TensorFlow Datasets.
        flags: Flags of the training script; see `study.make_run`.
        stream: Where progress is shown; see `study.do_runs`.

    Returns:
        `(space, rows)`: the parameters, and a dictionary for each trial: its
        `trial` (a name), `params` by name, `accuracy`, `ece` and `nll` on the
        calibration split (NaN if it failed), and `failure`.
    """
    checks.choice("--strategy", strategy, STRATEGIES)
    space = search_space(config, others, data_dir)

    def try_out(candidates):
        runs = {}
        for params in candidates:
            name = trial_name(params)
            folder = os.path.join(output_dir, "trials", name)
            own = with_params(config, space, params)
            title = name.replace("_", ", ")
            runs[name] = study.make_run(title, own, folder, flags)
        failures = study.do_runs(list(runs.values()), pool, _describe, stream)
        return [
            _row(params, run, failures.get(run))
            for params, run in zip(candidates, runs.values(), strict=True)
        ]

    if strategy == "joint":
        limit = trials or _JOINT_TRIALS
        return space, _joint(config.seed, space, limit, pool.slots, try_out)
    return space, _sequential(space, trials or math.inf, try_out)


def best_trial(rows):
    """Returns the row of the best trial."""
    if all(row["failure"] for row in rows):
        failures = {row["failure"] for row in rows}
        raise ValueError(
            "All trials failed; the same command tries again. "
            + "; ".join(sorted(failures))
        )
    return statistics.best_within_accuracy(rows)


def measure_trial(folder):
    """Returns `accuracy`, `ece` and `nll` of a run on its calibration split."""
    logits, labels = prediction_files.load(
        os.path.join(folder, "predictions", "calibration.npz")
    )
    measures = {
        "accuracy": metrics.accuracy,
        "ece": metrics.calibration_error,
        "nll": metrics.negative_log_likelihood,
    }
    return {
        name: float(function(logits, labels, from_logits=True))
        for name, function in measures.items()
    }


def with_params(config, space, params):
    """Returns the configuration of a trial: with its values, without `search`.

    The other values of the search do not belong to the run, and may change.
    """
    config = copy.deepcopy(config)
    keys = {parameter.name: parameter.key for parameter in space}
    settings.override(config, {keys[name]: params[name] for name in params})
    with config.unlocked():
        del config.search
    return config


def trial_name(params):
    """Returns the name of a trial and of its folder.

    Example:
        >>> trial_name({"beta": 1.0, "l2": 0.0002, "binning": "bin"})
        'beta=1.0_l2=0.0002_binning=bin'
    """
    text = "_".join(f"{name}={value}" for name, value in params.items())
    return text.replace("/", "-")


def trials_table(rows):
    """Returns the trials as a `pandas.DataFrame`, with a verdict on each."""
    best = best_trial(rows)
    most = max(row["accuracy"] for row in rows if not row["failure"])
    within = statistics.within_accuracy(rows, reference=most)
    table = []
    for row, is_within in zip(rows, within, strict=True):
        if row is best:
            verdict = "best"
        elif row["failure"]:
            verdict = f"failed: {row['failure']}"
        elif not is_within:
            lost = 100 * (most - row["accuracy"])
            verdict = f"gives up {lost:.2f} points of accuracy"
        else:
            more = 100 * (row["ece"] - best["ece"])
            verdict = f"ECE higher by {more:.2f} points"
        numbers = {key: row[key] for key in ("accuracy", "ece")}
        verdict = {"verdict": verdict}
        table.append(
            {"trial": row["trial"], **row["params"], **numbers, **verdict}
        )
    return pd.DataFrame(table)


def write_tuning(config, space, rows, output_dir):
    """Writes `trials.csv` and `best.json`, and returns the latter's contents.

    `best.json` has the `objective`, the `data`, `overrides` (values by key),
    `flags` (the same for a training script), `calibration` (the trial's
    measures), `trial`, and `config` (the whole configuration).
    """
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
        "calibration": {key: row[key] for key in ("accuracy", "ece", "nll")},
        "config": with_params(config, space, row["params"]).to_dict(),
    }
    text = json.dumps(best, indent=2)
    files.write_text(os.path.join(output_dir, settings.BEST), text + "\n")
    return json.loads(text)


def _sequential(space, limit, try_out):
    params = {
        p.name: p.values[0] if p.default is None else p.default for p in space
    }
    rows = []
    for parameter in space:
        known = {row["trial"] for row in rows}
        new = {}
        for value in parameter.values:
            candidate = {**params, parameter.name: value}
            if trial_name(candidate) not in known:
                new[trial_name(candidate)] = candidate
        count = min(limit - len(rows), len(new))
        rows += try_out(list(new.values())[:count])
        params = best_trial(rows)["params"]
    return rows


def _joint(seed, space, limit, slots, try_out):
    """Asks a sampler of Optuna for `slots` trials at a time.

    The sampler's proposals are a function of the seed and of the results so
    far, so that a search that is started again finds its own trials finished.
    """
    try:
        import optuna
    except ImportError as error:
        raise ValueError(
            "--strategy=joint needs the package optuna: "
            'pip install "caltrain_tf[tune]"'
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    search = optuna.create_study(
        directions=["minimize", "maximize"],  # The ECE, the accuracy.
        sampler=optuna.samplers.TPESampler(seed=seed),
    )
    failed = optuna.trial.TrialState.FAIL
    rows, names = [], set()
    while len(rows) < limit:
        asked = []
        for _ in range(_MOST_PROPOSALS):
            trial = search.ask()
            params = {p.name: _suggest(trial, p) for p in space}
            if trial_name(params) in names:
                search.tell(trial, state=failed)
                continue
            names.add(trial_name(params))
            asked.append((trial, params))
            if len(asked) == min(max(slots, 1), limit - len(rows)):
                break
        if not asked:
            break
        new = try_out([params for _, params in asked])
        for (trial, _), row in zip(asked, new, strict=True):
            if row["failure"]:
                search.tell(trial, state=failed)
            else:
                search.tell(trial, [row["ece"], row["accuracy"]])
        rows += new
    return rows


def _suggest(trial, parameter):
    """Returns a proposed value; floats are rounded to four digits."""
    values = parameter.values
    if any(isinstance(value, bool | str) for value in values):
        return trial.suggest_categorical(parameter.name, values)
    low, high = min(values), max(values)
    log = parameter.name != "threshold" and low > 0
    if all(isinstance(value, int) for value in values):
        return trial.suggest_int(parameter.name, low, high, log=log)
    value = trial.suggest_float(parameter.name, low, high, log=log)
    return min(max(float(f"{value:.4g}"), low), high)


def _row(params, run, outcome):
    row = {"trial": trial_name(params), "params": params, "failure": ""}
    row |= dict.fromkeys(("accuracy", "ece", "nll"), math.nan)
    if outcome is not None:
        row["failure"] = f"{outcome.failure}: {outcome.last_line}"
        return row
    row |= measure_trial(run.folder)
    if not math.isfinite(row["ece"]):
        row["failure"] = "the result is not finite"
    return row


def _describe(run):
    result = measure_trial(run.folder)
    return f"accuracy {result['accuracy']:.2%}, ECE {result['ece']:.2%}"


def _place(name):
    return _FIRST.index(name) if name in _FIRST else len(_FIRST)


def _literal(text):
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def _checked(config, key, values):
    """Returns distinct values and the default, which runs can have."""
    default = settings.flatten(config).get(key)
    is_float = isinstance(default, float)
    found = []
    for value in values:
        trial = copy.deepcopy(config)
        if is_float and isinstance(value, int):
            value = float(value)
        settings.override(trial, {key: value}, "--config")
        settings.check(trial)
        build.loss(trial)
        found.append(value)
    return tuple(dict.fromkeys(found)), default
