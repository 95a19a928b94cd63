"""Executes runs in a pool, resumes them, and reports their results."""

import concurrent.futures
import contextlib
import json
import os
import signal
import sys

import pandas as pd
import tqdm

from caltrain_tf import checks, files, training
from caltrain_tf.experiments import config as settings
from caltrain_tf.experiments import experiment, shift, tables
from caltrain_tf.experiments.pool import Outcome, Run
from caltrain_tf.training import run_folder


def make_run(name, config, folder, flags=(), measured=None):
    """Returns a run: training, and the shift benchmark if asked for.

    `flags` are those of both scripts, such as `--data_dir`; `measured` are the
    options of the benchmark from `shift.shift_options`, or None.
    """
    if "://" not in folder:
        folder = os.path.abspath(folder)
    kind = "imagenet" if config.data.name == "imagenet" else "cifar"
    commands = [(f"baselines/{kind}/train.py", f"--resume={folder}", *flags)]
    if measured is not None:
        options = [
            f"--run_dir={folder}",
            f"--corruptions={','.join(measured['corruptions'])}",
            f"--severities={','.join(map(str, measured['severities']))}",
        ]
        if measured["num_examples"] is not None:
            options.append(f"--num_examples={measured['num_examples']}")
        if measured["generated"]:
            options.append("--generated")
        commands.append(("baselines/shift_benchmark.py", *options, *flags))
    return Run(name, config.to_dict(), folder, tuple(commands), measured)


def study_runs(
    config, objectives, seeds, output_dir, tuned=None, flags=(), measured=None
):
    """Returns the runs of a study, in `<output_dir>/<objective>/seed<k>`.

    All objectives of the first seed come first, so that a study that is stopped
    early still compares all of them. `tuned` are settings of individual
    objectives from `config.read_tuned`; see `make_run` for the last two.
    """
    for what, values in (("objectives", objectives), ("seeds", seeds)):
        if not values or len(set(values)) < len(values):
            raise ValueError(
                f"--{what} must be at least one, and each only once. "
                f"Received: --{what}={list(values)}"
            )
    runs = []
    for seed in seeds:
        for name in objectives:
            own = settings.with_objective(config, name)
            own.seed = checks.count("--seeds", seed, low=0)
            overrides = (tuned or {}).get(name, {})
            settings.override(own, overrides)
            if settings.objective(own) != name or own.seed != seed:
                raise ValueError(
                    "--tuned must leave the losses and the seed as they are. "
                    f"Received: {overrides} for {name!r}"
                )
            folder = os.path.join(output_dir, name, f"seed{seed}")
            title = f"{name} seed {seed}"
            runs.append(make_run(title, own, folder, flags, measured))
    return runs


def is_finished(run):
    """Returns whether a run has all its results."""
    if experiment.read_results(run.folder) is None:
        return False
    return run.shift is None or shift.has_shift(run.folder, **run.shift)


def unfinished(runs):
    """Returns unfinished runs; raises if a folder has another configuration."""
    for run in runs:
        if (files.as_path(run.folder) / "config.json").exists():
            run_folder.check_config(run.folder, run.config)
    return [run for run in runs if not is_finished(run)]


def do_runs(runs, pool, read=experiment.read_results, stream=None):
    """Executes the unfinished runs in a pool; returns failures by run.

    A run that fails does not stop the others. SIGINT (Ctrl-C) and SIGTERM stop
    the runs, which write checkpoints, and then this process; a second signal
    kills them. `read` returns the accuracy and the ECE of a folder to show.
    """
    left, failures = unfinished(runs), {}
    for run in left:
        text = json.dumps(run.config, indent=2) + "\n"
        with contextlib.suppress(OSError):  # The run will fail, and say why.
            files.write_text(os.path.join(run.folder, "config.json"), text)
    ended = len(runs) - len(left)
    bar = tqdm.tqdm(
        total=len(runs),
        initial=ended,
        file=stream or sys.stderr,
        disable=None if left else True,  # None: outside a terminal.
        dynamic_ncols=True,
        unit="run",
    )

    def say(text):
        bar.write(text, file=stream or sys.stderr)

    with _signals() as signals, bar:
        futures = {pool.submit(run): run for run in left}
        seen = 0
        while futures:
            # Signals do not interrupt `wait`, so the timeout is short.
            concurrent.futures.wait(
                futures, 0.1, concurrent.futures.FIRST_COMPLETED
            )
            if len(signals) > seen == 0:
                say("Stopping the runs, with checkpoints. Again to kill them.")
                pool.stop()
            elif len(signals) > seen:
                pool.kill()
            seen = len(signals)
            for future in [future for future in futures if future.done()]:
                run = futures.pop(future)
                outcome = _outcome(run, future)
                if outcome.failure and signals:
                    continue
                if outcome.failure:
                    failures[run] = outcome
                    text = f"FAILED, {outcome.failure}: {outcome.last_line}"
                else:
                    results, seconds = read(run.folder), outcome.seconds
                    text = f"accuracy {results['accuracy']:.2%}, "
                    took = tqdm.tqdm.format_interval(seconds)
                    text += f"ECE {results['ece']:.2%}, {took}"
                ended += 1
                bar.update()
                say(f"{run.name}: {text} ({ended}/{len(runs)})")
    if signals:
        raise (
            KeyboardInterrupt
            if signals[0] == signal.SIGINT
            else training.Preempted
        )
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
    except (Exception, concurrent.futures.CancelledError) as error:
        # For example, the folder cannot be made, or Ray has lost its nodes.
        first = str(error).strip().partition("\n")[0]
        return Outcome(type(error).__name__, first, 0.0)
    if not outcome.failure and not is_finished(run):
        return Outcome("ended without its results", outcome.last_line, 0.0)
    return outcome


@contextlib.contextmanager
def _signals():
    """Collects SIGINT and SIGTERM in a list instead of ending the process."""
    caught = []
    previous = {
        number: signal.signal(number, lambda n, _: caught.append(n))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield caught
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
