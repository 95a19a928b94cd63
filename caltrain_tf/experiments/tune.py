"""Hyperparameter tuning: the paper's sequential search, and a joint search.

A trial is an ordinary run, measured on the calibration split. Results are read
from the folders of the trials: finished trials are not run again, and failed
trials are run again the next time.
"""

import dataclasses
import hashlib
import json
import math
import os
import re
import signal

import numpy as np
import pandas as pd

from caltrain_tf import checks, evaluation, files, metrics, training
from caltrain_tf.experiments import statistics
from caltrain_tf.experiments.config import BEST, Run, run_name
from caltrain_tf.experiments.pool import LOG
from caltrain_tf.experiments.search import (
    Parameter,
    get_path,
    search_space,
    trial_name,
    with_params,
)
from caltrain_tf.experiments.study import do_runs

STRATEGIES = ("sequential", "joint")
_JOINT_TRIALS = 20
# If so many proposals are all known, there are no new values to try.
_MOST_PROPOSALS = 100


@dataclasses.dataclass(frozen=True)
class Trial:
    """A trial that has ended.

    Attributes:
        params: Values of the parameters by name.
        result: `accuracy`, `ece` and `nll` on the calibration split; None if
            the trial failed.
        reason: Why the trial failed, or None.
        seconds: How long its processes took.
    """

    params: dict
    result: dict | None
    reason: str | None
    seconds: float


@dataclasses.dataclass(frozen=True)
class Tuning:
    """The result of a tuning.

    Attributes:
        space: The parameters, a list of `Parameter`.
        trials: The `Trial`s by name, in order.
        best: The name of the best trial.
    """

    space: list[Parameter]
    trials: dict[str, Trial]
    best: str


def tune(
    config,
    output_dir,
    pool,
    *,
    strategy="sequential",
    others=(),
    trials=None,
    stream=None,
    **options,
):
    """Tunes the hyperparameters of an objective.

    `"sequential"` is the paper's search: it tunes one parameter after the other
    (see `search_space`), with the other parameters at the values of the best
    trial so far. `"joint"` tunes all parameters together: the tree-structured
    Parzen estimator of Optuna proposes values between the smallest and the
    largest ones. The best trial has the lowest ECE among the trials that give
    up less than 1% accuracy relative to the most accurate trial, both on the
    calibration split.

    Ctrl-C and SIGTERM stop the trials and the program, as they stop a single
    run.

    Args:
        config: The configuration, as in `configs/`.
        output_dir: The folder of the tuning; trials are runs in `trials/`.
        pool: A `LocalPool` or a `RayPool`.
        strategy: `"sequential"` or `"joint"`.
        others: Settings to tune that `config.search` does not name; see
            `search_space`.
        trials: The largest number of trials in total; by default all values of
            a sequential search, and 20 trials of a joint search.
        stream: Where progress is shown; see `do_runs`.
        **options: Further attributes of the runs, such as `data_dir`.

    Returns:
        A `Tuning`.
    """
    checks.choice("strategy", strategy, STRATEGIES)
    space = search_space(config, others, options.get("data_dir"))
    limit = _default_trials(space, strategy) if trials is None else trials
    checks.count("trials", limit)

    def try_out(all_params):
        runs = {}
        for params in all_params:
            name = trial_name(params)
            runs[name] = Run(
                name.replace("_", ", "),
                with_params(config, space, params).to_dict(),
                os.path.join(output_dir, "trials", name),
                **options,
            )
        outcome = do_runs(list(runs.values()), pool, _describe, stream)
        if outcome.stopped_by is not None:
            raise _interruption(outcome.stopped_by)
        reasons = {
            failure.run: f"{failure.reason}: {failure.last_line}"
            for failure in outcome.failures
        }
        return {
            name: _ended(params, run, reasons.get(run))
            for params, (name, run) in zip(
                all_params, runs.items(), strict=True
            )
        }

    if strategy == "joint":
        search = _JointSearch(config, space, output_dir)
        found = search.run(limit, pool.slots, try_out)
    else:
        found = _sequential(space, limit, try_out)
    return Tuning(space, found, best_trial(found))


def measure_trial(folder):
    """Returns the measures of a finished trial by which trials are compared.

    Args:
        folder: The run's folder.

    Returns:
        `accuracy`, `ece` and `nll` on the calibration split. The test split is
        not used.
    """
    logits, labels = evaluation.load_predictions(
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


def best_trial(trials):
    """Returns the name of the best trial that did not fail.

    Args:
        trials: The `Trial`s by name.
    """
    rows = [
        {"name": name, **trial.result}
        for name, trial in trials.items()
        if trial.result is not None
    ]
    if not rows:
        reasons = "; ".join(
            f"{name}: {trial.reason}" for name, trial in trials.items()
        )
        raise RuntimeError(
            f"All trials failed; the same command tries again. {reasons}"
        )
    return statistics.best_within_accuracy(rows)["name"]


def tuning_rows(tuning):
    """Returns a table of the trials.

    Args:
        tuning: The result of `tune`.

    Returns:
        A `pandas.DataFrame` with the columns `trial`, the parameters' names,
        `accuracy` and `ece` (on the calibration split, missing if the trial
        failed), `seconds` and `verdict`, which is `best` or the reason why the
        trial is not the best.
    """
    results = {
        name: trial.result
        for name, trial in tuning.trials.items()
        if trial.result is not None
    }
    within = statistics.within_accuracy(list(results.values()))
    within = dict(zip(results, within, strict=True))
    most = max(result["accuracy"] for result in results.values())
    rows = []
    for name, trial in tuning.trials.items():
        result = results.get(name, {})
        if name == tuning.best:
            verdict = "best"
        elif name not in results:
            verdict = f"failed: {trial.reason}"
        elif not within[name]:
            lost = 100 * (most - result["accuracy"])
            verdict = f"gives up {lost:.2f} points of accuracy"
        else:
            more = 100 * (result["ece"] - results[tuning.best]["ece"])
            verdict = f"ECE higher by {more:.2f} points"
        rows.append(
            {
                "trial": name,
                **{p.name: trial.params[p.name] for p in tuning.space},
                "accuracy": result.get("accuracy"),
                "ece": result.get("ece"),
                "seconds": round(trial.seconds, 1),
                "verdict": verdict,
            }
        )
    return pd.DataFrame(rows)


def tuning_table(tuning):
    """Returns the trials as a table for the terminal, in percent."""
    table = tuning_rows(tuning).drop(columns=["trial", "seconds"])
    for key in ("accuracy", "ece"):
        table[key] = [
            "-" if pd.isna(value) else f"{100 * value:.2f}"
            for value in table[key]
        ]
    width = table["verdict"].str.len().max()
    table["verdict"] = table["verdict"].str.ljust(width)
    table = table.rename(
        columns={"ece": "ECE", "verdict": "verdict".ljust(width)}
    )
    text = table.to_string(index=False, float_format="{:g}".format, col_space=8)
    return "\n".join(line.rstrip() for line in text.splitlines())


def write_tuning(config, tuning, output_dir):
    """Writes `trials.csv` and `best.json`.

    Args:
        config: The configuration that was tuned.
        tuning: The result of `tune`.
        output_dir: The tuning's folder.

    Returns:
        The contents of `best.json`: `objective`, `data`, `overrides` (values by
        their path in the configuration), `flags` (the same for a training
        script), `calibration` (the trial's measures on the calibration split),
        `trial`, and `config` (the whole configuration with these values).
    """
    text = tuning_rows(tuning).to_csv(index=False, lineterminator="\n")
    files.write_text(os.path.join(output_dir, "trials.csv"), text)
    trial = tuning.trials[tuning.best]
    overrides = {p.path: trial.params[p.name] for p in tuning.space}
    best = {
        "objective": run_name(config),
        "data": config.data.name,
        "trial": tuning.best,
        "overrides": overrides,
        "flags": " ".join(f"--config.{p}={v}" for p, v in overrides.items()),
        "calibration": trial.result,
        "config": with_params(config, tuning.space, trial.params).to_dict(),
    }
    text = json.dumps(best, indent=2)
    files.write_text(os.path.join(output_dir, BEST), text + "\n")
    return json.loads(text)


def _sequential(space, limit, try_out):
    params = {
        parameter.name: parameter.values[0]
        if parameter.default is None
        # Converted to one type, because 1 and 1.0 give different trial names.
        else type(parameter.values[0])(parameter.default)
        for parameter in space
    }
    found = {}
    for parameter in space:
        new = {}
        for value in parameter.values:
            candidate = {**params, parameter.name: value}
            # Known trials are not run again.
            if trial_name(candidate) not in found:
                new[trial_name(candidate)] = candidate
        found |= try_out(list(new.values())[: limit - len(found)])
        params = found[best_trial(found)].params
    return found


class _JointSearch:
    """A search over all parameters together, with a sampler of Optuna.

    The sampler stores its trials in `study.db` in the folder of the tuning.
    Finished trials that are not in it, such as those of a sequential search,
    are added.
    """

    def __init__(self, config, space, output_dir):
        self._optuna = _import_optuna()
        if "://" in str(output_dir):
            raise ValueError(
                "`strategy=joint` keeps a database beside the trials: "
                "`output_dir` must be a local folder. "
                f"Received: output_dir={str(output_dir)!r}"
            )
        self._states = self._optuna.trial.TrialState
        self._config, self._space = config, space
        self._trials_dir = os.path.join(output_dir, "trials")
        self._ranges = {p.name: self._range(p) for p in space}
        os.makedirs(output_dir, exist_ok=True)
        path = os.path.join(os.path.abspath(output_dir), "study.db")
        self._storage = self._optuna.storages.RDBStorage(f"sqlite:///{path}")
        # Optuna does not allow different ranges in one study.
        ranges = json.dumps({k: repr(v) for k, v in self._ranges.items()})
        digest = hashlib.sha256(ranges.encode()).hexdigest()[:8]
        self._study = self._optuna.create_study(
            study_name=f"{run_name(config)} {digest}",
            storage=self._storage,
            directions=["minimize", "maximize"],  # The ECE, the accuracy.
            load_if_exists=True,
        )

    def run(self, limit, batch, try_out):
        """Returns the trials, at most `limit`, `batch` at a time."""
        try:
            self._add_finished_runs()
            trials = self._trials()
            known = [trial.user_attrs["params"] for trial in trials.values()]
            # Stopped trials resume, and failed trials are run again.
            found = try_out(known[:limit])
            self._tell(found, trials)
            self._add_finished_runs()
            while len(found) < min(limit, self._count_choices()):
                asked = self._ask(min(batch, limit - len(found)), found)
                if not asked:
                    break
                new = try_out([t.user_attrs["params"] for t in asked.values()])
                self._tell(new, asked)
                found |= new
            return found
        finally:
            self._storage.engine.dispose()

    def _count_choices(self):
        """Returns the number of possible trials, which may be infinite."""
        counts = [
            math.inf if p.is_number and len(p.values) > 1 else len(p.values)
            for p in self._space
        ]
        return math.prod(counts)

    def _trials(self):
        """Returns the newest trial of every name, in the order of the names."""
        return {
            trial_name(trial.user_attrs["params"]): trial
            for trial in self._study.get_trials()
            if "params" in trial.user_attrs
        }

    def _ask(self, count, found):
        """Returns trials with new parameters, by name."""
        asked = {}
        for attempt in range(_MOST_PROPOSALS):
            # The seed depends on the number of earlier trials and not on the
            # process, so that a resumed search makes the same proposals.
            before = len(found) + len(asked)
            seed = np.random.SeedSequence((self._config.seed, before, attempt))
            self._study.sampler = self._optuna.samplers.TPESampler(
                seed=int(seed.generate_state(1)[0])
            )
            trial = self._study.ask(self._ranges)
            params = {p.name: _rounded(trial.params, p) for p in self._space}
            name = trial_name(params)
            if name in found or name in asked:
                self._study.tell(trial, state=self._states.FAIL)
                continue
            trial.set_user_attr("params", params)
            asked[name] = trial
            if len(asked) == count:
                break
        return asked

    def _tell(self, found, trials):
        """Reports the results of trials to the sampler."""
        for name, trial in found.items():
            result = trial.result
            self._study.tell(
                trials[name].number,
                result and [result["ece"], result["accuracy"]],
                None if result else self._states.FAIL,
                skip_if_finished=True,
            )

    def _add_finished_runs(self):
        """Adds finished runs that the sampler does not know."""
        trials = self._trials()
        folder = files.as_path(self._trials_dir)
        for run in sorted(folder.iterdir()) if folder.exists() else []:
            # A running trial is reported when it has ended.
            known = run.name in trials
            if known and trials[run.name].state != self._states.FAIL:
                continue
            if not (run / "results.json").exists():
                continue
            there = json.loads((run / "config.json").read_text())
            params = {p.name: get_path(there, p.path) for p in self._space}
            here = with_params(self._config, self._space, params).to_dict()
            if json.loads(json.dumps(here)) != there:
                continue
            result = measure_trial(run)
            try:
                trial = self._optuna.trial.create_trial(
                    params=params,
                    distributions=self._ranges,
                    values=[result["ece"], result["accuracy"]],
                    user_attrs={"params": params},
                )
            except ValueError:
                continue  # Outside the ranges.
            self._study.add_trial(trial)

    def _range(self, parameter):
        distributions, values = self._optuna.distributions, parameter.values
        if not parameter.is_number:
            return distributions.CategoricalDistribution(values)
        whole = all(isinstance(value, int) for value in values)
        kind = "IntDistribution" if whole else "FloatDistribution"
        return getattr(distributions, kind)(
            min(values), max(values), log=parameter.is_log
        )


def _import_optuna():
    try:
        import optuna
    except ImportError as error:
        raise ImportError(
            "`strategy=joint` needs the package optuna: "
            'pip install "caltrain_tf[tune]"'
        ) from error
    # Optuna would otherwise log a message at every start.
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _rounded(params, parameter):
    """Returns a proposed value; floats are rounded to four digits."""
    value = params[parameter.name]
    if not isinstance(value, float):
        return value
    low, high = min(parameter.values), max(parameter.values)
    return min(max(float(f"{value:.4g}"), low), high)


def _default_trials(space, strategy):
    if strategy == "joint":
        return _JOINT_TRIALS
    first, *others = space
    # The default of a later parameter was tried with the earlier parameters.
    return len(first.values) + sum(
        len(set(parameter.values) - {parameter.default}) for parameter in others
    )


def _describe(run):
    result = measure_trial(run.folder)
    return f"accuracy {result['accuracy']:.2%}, ECE {result['ece']:.2%}"


def _ended(params, run, reason):
    """Returns the `Trial` of a run that has ended."""
    result = None
    if reason is None:
        result = measure_trial(run.folder)
        if not all(map(math.isfinite, result.values())):
            parts = ", ".join(f"{key}={result[key]}" for key in result)
            result, reason = None, f"the result is not finite: {parts}"
    return Trial(params, result, reason, _seconds(run.folder))


def _seconds(folder):
    """Returns how long the processes of a run took, from its log."""
    path = files.as_path(folder) / LOG
    log = path.read_text() if path.exists() else ""
    times = re.findall(r"^--- .* after ([0-9.]+) s$", log, re.M)
    return sum(map(float, times)) if times else math.nan


def _interruption(number):
    """Returns the exception for a signal, the same as for a single run."""
    if number == signal.SIGINT:
        return KeyboardInterrupt()
    return training.Preempted()
