"""How far a study is, on a terminal or in a file."""

import shutil
import sys
import time

import numpy as np

from caltrain_tf.experiments.run_state import epochs_done
from caltrain_tf.training.logs import format_time


class StudyProgress:
    """A line with the numbers of runs, the time so far and the time left.

    On a terminal the line is redrawn; elsewhere a new one is written now and
    then. The time left is that of the runs so far; before the first one has
    ended, that of their epochs.

    Args:
        total: The number of all runs.
        stream: Where to write; standard error if None.
        seconds_between_lines: How often, where it is not a terminal.
    """

    def __init__(self, total, stream=None, seconds_between_lines=60.0):
        """Starts the clock."""
        self.total = total
        self._stream = sys.stderr if stream is None else stream
        self._is_terminal = self._stream.isatty()
        self._between = 1.0 if self._is_terminal else seconds_between_lines
        self._start = time.monotonic()
        self._last_shown = -float("inf")
        self._first_epochs = {}
        self._seconds_per_run = []

    def start(self, setting):
        """A run begins, or goes on."""
        self._first_epochs[setting.folder] = epochs_done(setting.folder)

    def end(self, setting, seconds):
        """A run has ended well."""
        rest = 1 - self._first_epochs[setting.folder] / setting.config["epochs"]
        if rest > 0:
            self._seconds_per_run.append(seconds / rest)

    def show(self, children, waiting, elsewhere=0, failed=0):
        """Shows the state, unless it was shown just now.

        Args:
            children: The running `Child`ren by `Setting`.
            waiting: The number of runs that nobody has begun.
            elsewhere: The number of runs that others are at.
            failed: The number of runs that failed.
        """
        now = time.monotonic()
        if now - self._last_shown < self._between:
            return
        self._last_shown = now
        running = len(children) + elsewhere
        line = (
            f"{self.total - failed - running - waiting}/{self.total} finished"
            f"  {failed} failed  "
            f"{running} running  {waiting} left  "
            f"{format_time(now - self._start)} elapsed  "
            f"{self._time_left(children, waiting, elsewhere)} left"
        )
        for setting in children:
            epochs = epochs_done(setting.folder)
            line += f"  {setting.name}: {epochs}/{setting.config['epochs']}"
        if self._is_terminal:
            columns = shutil.get_terminal_size().columns
            self._stream.write(f"\r{line[: columns - 1]:<{columns - 1}}")
        else:
            self._stream.write(line + "\n")
        self._stream.flush()

    def note(self, text):
        """Writes a line that stays."""
        if self._is_terminal:
            columns = shutil.get_terminal_size().columns
            self._stream.write("\r" + " " * (columns - 1) + "\r")
            self._last_shown = -float("inf")
        self._stream.write(text + "\n")
        self._stream.flush()

    def _time_left(self, children, waiting, elsewhere):
        shares, guesses = [], []
        for setting, child in children.items():
            epochs = setting.config["epochs"]
            done = epochs_done(setting.folder)
            shares.append(1 - min(done / epochs, 1.0))
            new = done - self._first_epochs[setting.folder]
            if new > 0:
                guesses.append(child.seconds * epochs / new)
        samples = self._seconds_per_run or guesses
        if not samples or not children:
            return "?"
        runs = waiting + elsewhere + sum(shares)
        at_once = len(children) + elsewhere
        return format_time(np.mean(samples) * runs / at_once)
