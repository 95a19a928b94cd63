"""`metrics.jsonl`: what a run has measured, a line a log."""

import json
import math

import tensorflow as tf

from caltrain_tf.training.run_folder import write_text


class MetricsLog:
    """Rows of values, in memory and in a file of JSON lines.

    Holds no times, so that a run that was killed and went on has the log of one
    that was not. A value that is not finite is written as null.

    Args:
        path: The file, or None for memory alone.
    """

    def __init__(self, path=None):
        """Reads the rows that are there; a torn last line is none."""
        self.path = path
        self.rows = []
        if path is not None and tf.io.gfile.exists(path):
            with tf.io.gfile.GFile(path) as file:
                self.rows = list(_whole_rows(file.read()))

    def rewind(self, step):
        """Forgets what was logged after a step."""
        self.rows = [row for row in self.rows if row["step"] <= step]
        if self.path is not None:
            write_text(self.path, "".join(map(_line, self.rows)))

    def append(self, row):
        """Adds a row, which has a `step`."""
        self.rows.append(row)
        if self.path is not None:
            with tf.io.gfile.GFile(self.path, "a") as file:
                file.write(_line(row))


def _line(row):
    values = {
        key: None
        if isinstance(value, float) and not math.isfinite(value)
        else value
        for key, value in row.items()
    }
    return json.dumps(values, allow_nan=False) + "\n"


def _whole_rows(text):
    for line in text.splitlines():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            return
