"""Executes the runs of a study in a pool, and reports their results."""

import concurrent.futures
import dataclasses
import os
import signal
import sys
import threading
import time

import pandas as pd
import tqdm

from caltrain_tf import files, training
from caltrain_tf.experiments import shift
from caltrain_tf.experiments.config import Run, run_name
from caltrain_tf.experiments.pool import LOG
from caltrain_tf.experiments.train import epochs_done, read_results
from caltrain_tf.training.logs import format_time

_SECONDS_BETWEEN_LOOKS = 0.1
_COLUMNS = {
    "accuracy": "accuracy",
    "ece": "ECE",
    "ece_ts": "ECE+TS",
    "ece_ts_sb_ece": "ECE+TS-SB-ECE",
}


@dataclasses.dataclass(frozen=True)
class Failure:
    """A run that failed.

    Attributes:
        run: The run.
        reason: How its process ended.
        last_line: The last line of its log.
    """

    run: Run
    reason: str
    last_line: str

    def __str__(self):
        """Returns the failure as lines for the terminal."""
        return (
            f"{self.run.name}: {self.reason}\n"
            f"    {self.last_line}\n"
            f"    {os.path.join(self.run.folder, LOG)}"
        )


@dataclasses.dataclass
class Outcome:
    """The outcome of several runs.

    Attributes:
        failures: A list of `Failure`.
        stopped_by: The number of the signal that stopped them, or None.
    """

    failures: list = dataclasses.field(default_factory=list)
    stopped_by: int | None = None


def is_finished(run):
    """Returns whether a run is trained and has its shift results, if any."""
    if read_results(run.folder) is None:
        return False
    return run.shift is None or shift.has_shift(run.folder, **run.shift)


def unfinished(runs):
    """Returns the runs that are not finished.

    It raises if the folder of a run has another configuration.

    Args:
        runs: A list of `Run`.

    Returns:
        A list of `Run`.
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
    results = read_results(run.folder)
    return f"accuracy {results['accuracy']:.2%}, ECE {results['ece']:.2%}"


def do_runs(runs, pool, describe=describe_results, stream=None):
    """Executes the unfinished runs in a pool.

    A run that fails does not stop the others. SIGINT (Ctrl-C) and SIGTERM stop
    the runs, which write checkpoints; a second signal kills them. Call the
    function again with the same runs to resume them.

    Args:
        runs: A list of `Run`.
        pool: A `LocalPool` or a `RayPool`.
        describe: Function from a run that succeeded to a text.
        stream: Where progress is shown; standard error if None. A terminal
            shows a bar; other streams get a line for each run that ends.

    Returns:
        An `Outcome`.
    """
    outcome = Outcome()
    left = unfinished(runs)
    with _Signals() as signals, _View(runs, left, pool, stream) as view:
        futures = {pool.submit(run): run for run in left}
        seen = 0
        while futures:
            if signals.count > seen:
                seen = signals.count
                outcome.stopped_by = signals.number
                if seen == 1:
                    count = len(pool.running())
                    view.write(
                        f"Stopping {count} runs, with checkpoints. Again to "
                        "kill them."
                    )
                    pool.stop()
                else:
                    pool.kill()
            # Signals do not interrupt `wait`, so the timeout is short.
            concurrent.futures.wait(
                futures,
                _SECONDS_BETWEEN_LOOKS,
                concurrent.futures.FIRST_COMPLETED,
            )
            for future in [future for future in futures if future.done()]:
                run = futures.pop(future)
                try:
                    text = _text_of(run, future, describe, outcome.failures)
                except concurrent.futures.CancelledError:
                    continue
                view.end(run, text)
            view.show(len(outcome.failures))
    return outcome


def summary_table(runs):
    """Returns a table of means ± standard errors over finished runs.

    Args:
        runs: A list of `Run`.

    Returns:
        A text with one row per objective; empty if no run is finished.
    """
    rows = [
        {"objective": run_name(run.config), **results}
        for run in runs
        if (results := read_results(run.folder)) is not None
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


def _text_of(run, future, describe, failures):
    """Returns the text for a run that has ended, and records failures."""
    try:
        ended = future.result()
        reason, last_line = ended.failure, ended.last_line
    except concurrent.futures.CancelledError:
        raise
    except Exception as error:
        # An error of the pool: for example, the folder cannot be created, or
        # Ray has lost too many nodes.
        reason = type(error).__name__
        last_line = str(error).strip().partition("\n")[0]
    if not reason and not is_finished(run):
        reason = "ended without its results"
    if reason:
        failures.append(Failure(run, reason, last_line))
        return f"FAILED, {reason}: {last_line}"
    return f"{describe(run)}, {format_time(ended.seconds)}"


class _Signals:
    """A context that counts SIGINT and SIGTERM instead of ending the process.

    Only the main thread of a program can handle signals; in other threads the
    context does nothing.
    """

    def __init__(self):
        self.count = 0
        self.number = None
        self._previous = {}

    def __enter__(self):
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *error):
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number, frame):
        del frame
        self.count += 1
        self.number = number


class _View:
    """A progress bar over all runs, and a line for every run that ends."""

    def __init__(self, runs, left, pool, stream):
        self._stream = sys.stderr if stream is None else stream
        self._pool = pool
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
        """Writes a permanent line."""
        if self._bar.disable:
            print(text, file=self._stream, flush=True)
        else:
            self._bar.write(text, file=self._stream)

    def end(self, run, text):
        """Records that a run has ended."""
        self._ended += 1
        self._shares.pop(run)
        self.write(f"{run.name}: {text} ({self._ended}/{self._total})")

    def show(self, failed):
        """Draws the bar, unless it was drawn just now."""
        now = time.monotonic()
        if self._bar.disable or now - self._shown < 1:
            return
        self._shown = now
        running = [run for run in self._pool.running() if run in self._shares]
        self._shares |= {run: _share_done(run) for run in running}
        self._bar.n = self._ended + sum(self._shares.values())
        self._bar.set_description_str(
            f"{self._ended}/{self._total} runs, {failed} failed",
            refresh=False,
        )
        self._bar.set_postfix_str(
            ", ".join(
                f"{run.name}: {epochs_done(run.folder)}/{run.config['epochs']}"
                for run in running
            )
        )


def _share_done(run):
    return min(epochs_done(run.folder) / run.config["epochs"], 1)
