"""Executes runs in a pool, resumes them, and reports their results."""

import concurrent.futures
import contextlib
import copy
import json
import os
import signal
import sys
import time

import pandas as pd
import tqdm

from caltrain_tf import checks, files, training
from caltrain_tf.experiments import config as settings
from caltrain_tf.experiments import experiment, shift
from caltrain_tf.experiments.pool import Outcome, Run
from caltrain_tf.training.logs import format_time

_SECONDS_BETWEEN_LOOKS = 0.1
_COLUMNS = {
    "accuracy": "accuracy",
    "ece": "ECE",
    "ece_ts": "ECE+TS",
    "ece_ts_sb_ece": "ECE+TS-SB-ECE",
}


def make_run(name, config, folder, flags=(), measured=None):
    """Returns a run: training, and the shift benchmark if asked for.

    Args:
        name: Name of the run on the terminal.
        config: The `ConfigDict` of the run.
        folder: The run's folder.
        flags: Flags of both scripts, such as `--data_dir`.
        measured: Options of the benchmark from `shift.shift_options`, or None.
    """
    if "://" not in folder:
        folder = os.path.abspath(folder)
    kind = "imagenet" if config.data.name == "imagenet" else "cifar"
    commands = [(f"baselines/{kind}/train.py", f"--resume={folder}", *flags)]
    if measured is not None:
        options = [f"--run_dir={folder}"]
        options.append(f"--corruptions={','.join(measured['corruptions'])}")
        levels = ",".join(map(str, measured["severities"]))
        options.append(f"--severities={levels}")
        if measured["num_examples"] is not None:
            options.append(f"--num_examples={measured['num_examples']}")
        if measured["generated"]:
            options.append("--generated")
        commands.append(("baselines/shift_benchmark.py", *options, *flags))
    return Run(name, config.to_dict(), folder, tuple(commands), measured)


def study_runs(
    config, objectives, seeds, output_dir, tuned=None, flags=(), measured=None
):
    """Returns the runs of a study.

    All objectives of the first seed come first, so that a study that is stopped
    early still compares all of them.

    Args:
        config: The configuration that the runs share.
        objectives: Names of objectives.
        seeds: Integers.
        output_dir: The study's folder; runs are in `<objective>/seed<k>`.
        tuned: Settings of individual objectives from `config.read_tuned`.
        flags: See `make_run`.
        measured: See `make_run`.
    """
    for what, values in (("objectives", objectives), ("seeds", seeds)):
        if not values or len(set(values)) < len(values):
            raise ValueError(
                f"--{what} must be at least one, and each only once. "
                f"Received: {what}={list(values)}"
            )
    runs = []
    for seed in seeds:
        for name in objectives:
            own = copy.deepcopy(config)
            primary, secondary, interleaved = settings.parse_objective(name)
            own.loss.primary, own.loss.secondary = primary, secondary
            own.interleaved.enabled = interleaved
            own.seed = checks.count("--seeds", seed, low=0)
            overrides = (tuned or {}).get(name, {})
            settings.override(own, overrides, name)
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
    """Returns the runs that are not finished.

    It raises if the folder of a run has another configuration.
    """
    differing = []
    for run in runs:
        if (files.as_path(run.folder) / "config.json").exists():
            try:
                training.check_config(run.folder, run.config)
            except ValueError as error:
                differing.append(str(error))
    if differing:
        raise ValueError("\n".join(differing))
    return [run for run in runs if not is_finished(run)]


def describe_results(run):
    """Returns the results of a finished run as a text."""
    results = experiment.read_results(run.folder)
    return f"accuracy {results['accuracy']:.2%}, ECE {results['ece']:.2%}"


def do_runs(runs, pool, describe=describe_results, stream=None):
    """Executes the unfinished runs in a pool.

    A run that fails does not stop the others. SIGINT (Ctrl-C) and SIGTERM stop
    the runs, which write checkpoints, and then this process; a second signal
    kills them. Call the function again with the same runs to resume them.

    Args:
        runs: A list of `Run`.
        pool: A `LocalPool` or a `RayPool`.
        describe: Function from a run that succeeded to a text.
        stream: Where progress is shown; standard error if None. A terminal
            shows a bar; other streams get a line for each run that ends.

    Returns:
        The `Outcome`s of failed runs by their run.
    """
    left, failures = unfinished(runs), {}
    for run in left:
        text = json.dumps(run.config, indent=2) + "\n"
        with contextlib.suppress(OSError):  # The run will fail, and say why.
            files.write_text(os.path.join(run.folder, "config.json"), text)
    with _signals() as signals, _Progress(runs, left, stream) as progress:
        futures = {pool.submit(run): run for run in left}
        seen = 0
        while futures:
            # Signals do not interrupt `wait`, so the timeout is short.
            concurrent.futures.wait(
                futures,
                _SECONDS_BETWEEN_LOOKS,
                concurrent.futures.FIRST_COMPLETED,
            )
            if len(signals) > seen == 0:
                count = len(pool.running())
                progress.write(
                    f"Stopping {count} runs, with checkpoints. Again to kill "
                    "them."
                )
                pool.stop()
            elif len(signals) > seen:
                pool.kill()
            seen = len(signals)
            for future in [future for future in futures if future.done()]:
                run = futures.pop(future)
                outcome = _outcome(run, future)
                if outcome.failure and not signals:
                    failures[run] = outcome
                    text = f"FAILED, {outcome.failure}: {outcome.last_line}"
                    progress.end(run, text)
                elif not outcome.failure:
                    seconds = format_time(outcome.seconds)
                    progress.end(run, f"{describe(run)}, {seconds}")
            progress.show(pool.running(), len(failures))
    if signals:
        raise (
            KeyboardInterrupt
            if signals[0] == signal.SIGINT
            else training.Preempted
        )
    return failures


def summary_table(runs):
    """Returns a table of means ± standard errors over finished runs.

    Args:
        runs: A list of `Run`.

    Returns:
        A text with one row per objective; empty if no run is finished.
    """
    rows = [
        {"objective": settings.objective(run.config), **results}
        for run in runs
        if (results := experiment.read_results(run.folder)) is not None
    ]
    if not rows:
        return ""
    groups = pd.DataFrame(rows).groupby("objective", sort=False)
    means, errors, counts = groups.mean(), groups.sem(), groups.size()
    table = pd.DataFrame({"runs": counts})
    for key, title in _COLUMNS.items():
        table[title] = [
            f"{100 * mean:.2f}" + (f" ± {100 * error:.2f}" if count > 1 else "")
            for mean, error, count in zip(
                means[key], errors[key], counts, strict=True
            )
        ]
    table.columns.name, table.index.name = "percent", None
    return table.to_string(col_space=4)


def failure_text(failures):
    """Returns failed runs, how they ended and their logs, as lines."""
    return "\n".join(
        f"{run.name}: {outcome.failure}\n    {outcome.last_line}\n"
        f"    {os.path.join(run.folder, 'log.txt')}"
        for run, outcome in failures.items()
    )


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


class _Progress:
    """A progress bar over all runs, and a line for every run that ends."""

    def __init__(self, runs, left, stream):
        self._stream = sys.stderr if stream is None else stream
        self._total = len(runs)
        self._ended = len(runs) - len(left)
        self._shown = -float("inf")
        is_terminal = self._stream.isatty()
        # The fraction of finished epochs of the runs that have not ended.
        self._shares = {run: is_terminal and _share_done(run) for run in left}
        self._bar = tqdm.tqdm(
            total=len(runs),
            initial=self._ended + sum(self._shares.values()),
            file=self._stream,
            disable=not is_terminal or not left,
            dynamic_ncols=True,
            bar_format="{desc}|{bar:10}| {elapsed}<{remaining}{postfix}",
        )

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._bar.close()

    def write(self, text):
        if self._bar.disable:
            print(text, file=self._stream, flush=True)
        else:
            self._bar.write(text, file=self._stream)

    def end(self, run, text):
        self._ended += 1
        self._shares.pop(run)
        self.write(f"{run.name}: {text} ({self._ended}/{self._total})")

    def show(self, running, failed):
        """Draws the bar, unless it was drawn just now."""
        now = time.monotonic()
        if self._bar.disable or now - self._shown < 1:
            return
        self._shown = now
        running = [run for run in running if run in self._shares]
        self._shares |= {run: _share_done(run) for run in running}
        self._bar.n = self._ended + sum(self._shares.values())
        self._bar.set_description_str(
            f"{self._ended}/{self._total} runs, {failed} failed", refresh=False
        )
        self._bar.set_postfix_str(
            ", ".join(
                f"{run.name}: {experiment.epochs_done(run.folder)}"
                f"/{run.config['epochs']}"
                for run in running
            )
        )


def _share_done(run):
    epochs = run.config["epochs"]
    return min(experiment.epochs_done(run.folder) / max(epochs, 1), 1)
