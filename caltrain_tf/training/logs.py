"""Logs of a run: `metrics.jsonl`, TensorBoard events and a progress bar."""

import json
import math
import sys

import tensorflow as tf
import tqdm

from caltrain_tf import files


class MetricsLog:
    """Rows of values, in memory and in a file of JSON lines, if it `writes`.

    It has no times, so a resumed run has the log of one that was never stopped.
    """

    def __init__(self, path=None, writes=True):
        self.path = path and files.as_path(path)
        self.writes = writes and path is not None
        self.rows = []
        if path is not None and self.path.exists():
            lines = self.path.read_text().splitlines()
            try:
                self.rows = list(map(json.loads, lines))
            except ValueError as error:
                raise ValueError(f"{path} is damaged: {error}") from error

    def rewind(self, step):
        """Removes the rows after a step."""
        self.rows = [row for row in self.rows if row["step"] <= step]
        self._write()

    def append(self, row):
        """Adds a row, which must have a `step`."""
        self.rows.append(row)
        self._write()

    def lowest(self, name):
        """Returns the lowest logged value that is a number, or infinity."""
        # What is not finite is None in rows that were read again.
        values = [row[name] for row in self.rows if row.get(name) is not None]
        return min(filter(math.isfinite, values), default=math.inf)

    def _write(self):
        # The whole file, a few kilobytes, because buckets cannot append.
        if self.writes:
            files.write_text(self.path, "".join(map(_line, self.rows)))


def write_scalars(values, step):
    """Writes scalars by name to TensorBoard events, if there are any."""
    # Even without events, `scalar` would take a millisecond.
    if tf.summary.should_record_summaries():
        for name, value in values.items():
            tf.summary.scalar(name, value, step)


def progress_bar(total_steps, first_step=0, shown=True):
    """Returns a `tqdm` bar on standard error, over the steps of a run."""
    is_terminal = sys.stderr.isatty()
    return tqdm.tqdm(
        total=total_steps,
        initial=first_step,
        unit="step",
        disable=not shown,
        dynamic_ncols=True,
        # In a file, every update is a new line.
        mininterval=0.1 if is_terminal else 30,
        bar_format=None if is_terminal else "{l_bar}{bar:10}{r_bar}\n",
    )


def show_epoch(bar, row, epochs):
    """Writes an epoch's row, without the parts of the loss, above the bar."""
    groups = {}
    for key, value in row.items():
        group, _, name = key.partition("/")
        if name and not name.endswith(("_loss", "_rate")):
            groups.setdefault(group, []).append(f"{name} {value:.4f}")
    lines = [f"  {group}: {', '.join(groups[group])}" for group in groups]
    text = "\n".join([f"epoch {row['epoch']}/{epochs}", *lines])
    if not bar.disable:
        # `write` clears the bar, which in a file is a line of its own.
        write = bar.write if sys.stderr.isatty() else print
        write(text, file=sys.stderr)


def _line(row):
    for key, value in row.items():
        if isinstance(value, float) and not math.isfinite(value):
            row = {**row, key: None}
    return json.dumps(row, allow_nan=False) + "\n"
