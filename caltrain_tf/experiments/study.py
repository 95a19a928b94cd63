"""Executes runs in a pool, resumes them, and reports their results."""

import concurrent.futures
import contextlib
import json
import os
import sys

import pandas as pd
import tqdm

from caltrain_tf import files
from caltrain_tf.experiments import config as settings
from caltrain_tf.experiments import experiment, tables
from caltrain_tf.experiments.pool import Outcome, Run
from caltrain_tf.training import run_folder

# The last file that each of a run's commands writes.
FINISHED = ("results.json", "shift.csv")


def make_run(name, config, folder, flags=(), shift=None):
    """Returns a run: training, and the shift benchmark with its own flags."""
    if "://" not in folder:
        folder = os.path.abspath(folder)
    kind = "imagenet" if config.data.name == "imagenet" else "cifar"
    commands = [(f"baselines/{kind}/train.py", f"--resume={folder}", *flags)]
    if shift is not None:
        arguments = f"--run_dir={folder}", *flags, *shift
        commands.append(("baselines/shift_benchmark.py", *arguments))
    return Run(name, config.to_dict(), folder, tuple(commands))


def study_runs(
    config, objectives, seeds, output_dir, tuned=None, flags=(), shift=None
):
    """Returns the runs of a study, in `<output_dir>/<objective>/seed<k>`."""
    for what, values in (("objectives", objectives), ("seeds", seeds)):
        if not values or len(set(values)) < len(values):
            raise ValueError(
                f"--{what} must be at least one, and each only once. "
                f"Received: --{what}={list(values)}"
            )
    runs = []
    # A study that is stopped early still compares all objectives.
    for seed in seeds:
        for name in objectives:
            own = settings.with_objective(config, name)
            own.seed = seed
            settings.override(own, (tuned or {}).get(name, {}))
            folder = os.path.join(output_dir, name, f"seed{seed}")
            title = f"{name} seed {seed}"
            runs.append(make_run(title, own, folder, flags, shift))
    return runs


def is_finished(run):
    """Returns whether a run has all its results."""
    there = [files.as_path(run.folder) / name for name in FINISHED]
    return all(path.exists() for path in there[: len(run.commands)])


def unfinished(runs):
    """Returns unfinished runs; raises if a folder has another configuration."""
    for run in runs:
        if (files.as_path(run.folder) / "config.json").exists():
            run_folder.check_config(run.folder, run.config)
    return [run for run in runs if not is_finished(run)]


def do_runs(runs, pool, read=experiment.read_results):
    """Executes the unfinished runs in a pool; returns failures by run.

    `read` returns the accuracy and the ECE of a folder to show.
    """
    left, failures = unfinished(runs), {}
    for run in left:
        text = json.dumps(run.config, indent=2) + "\n"
        with contextlib.suppress(OSError):  # The run will fail, and say why.
            files.write_text(os.path.join(run.folder, "config.json"), text)
    futures = {pool.submit(run): run for run in left}
    # Without a bar outside a terminal.
    options = {"total": len(left), "unit": "run", "disable": None}
    completed = tqdm.tqdm(concurrent.futures.as_completed(futures), **options)
    for ended, future in enumerate(completed, len(runs) - len(left) + 1):
        run = futures[future]
        outcome = _outcome(run, future)
        if outcome.failure:
            failures[run] = outcome
            text = f"FAILED, {outcome.failure}: {outcome.last_line}"
        else:
            results = read(run.folder)
            text = f"accuracy {results['accuracy']:.2%}, "
            text += f"ECE {results['ece']:.2%}, {outcome.seconds:.0f} s"
        text = f"{run.name}: {text} ({ended}/{len(runs)})"
        completed.write(text, file=sys.stderr)
    return failures


def summary_table(runs):
    """Returns a table of means ± standard errors over finished runs."""
    rows = []
    for run in runs:
        if (results := experiment.read_results(run.folder)) is not None:
            name = settings.objective(run.config)
            primary = run.config["loss"]["primary"]
            rows.append({"objective": name, "primary": primary, **results})
    if not rows:
        return ""
    return tables.to_text(tables.results_table(pd.DataFrame(rows)))


def _outcome(run, future):
    """Returns the `Outcome` of a run, also if the pool itself has failed."""
    try:
        outcome = future.result()
    except Exception as error:
        # For example, the folder cannot be made, or Ray has lost its nodes.
        first = str(error).strip().partition("\n")[0]
        return Outcome(type(error).__name__, first, 0.0)
    if not outcome.failure and not is_finished(run):
        return Outcome("ended without its results", outcome.last_line, 0.0)
    return outcome
