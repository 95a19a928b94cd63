"""Logs of a run: `metrics.jsonl`, TensorBoard events and a progress bar."""

import json
import math
import sys

import tensorflow as tf
import tqdm

from caltrain_tf import files


class MetricsLog:
    """Rows of values, in memory and in a file of JSON lines.

    The log holds no times, so that a resumed run has the same log as a run that
    was never interrupted. Values that are not finite are written as null.

    Args:
        path: The file, or None to keep rows only in memory. The rows of an
            existing file are read.
        writes: Whether to write the file; only one of several workers may.
    """

    def __init__(self, path=None, writes=True):
        self.path = None if path is None else files.as_path(path)
        self.writes = writes and path is not None
        self.rows = []
        if self.path is not None and self.path.exists():
            lines = self.path.read_text().splitlines()
            self.rows = [json.loads(line) for line in lines]

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
        values = [row.get(name) for row in self.rows]
        values = [v for v in values if v is not None and not math.isnan(v)]
        return min(values, default=math.inf)

    def _write(self):
        # The whole file, a few kilobytes, because buckets cannot append.
        if self.writes:
            files.write_text(self.path, "".join(map(_line, self.rows)))


class Summaries:
    """Writes TensorBoard events.

    Args:
        folder: The folder of the events, or None to write nothing.
    """

    def __init__(self, folder=None):
        self._writes = folder is not None
        if self._writes:
            self._writer = tf.summary.create_file_writer(folder)
        else:
            self._writer = tf.summary.create_noop_writer()

    def scalars(self, values, step):
        """Writes scalars by name."""
        if not self._writes:
            # Even a no-op writer takes a millisecond.
            return
        with self._writer.as_default(step=step):
            for name, value in values.items():
                tf.summary.scalar(name, value)

    def image(self, name, image, step):
        """Writes the bytes of a PNG file, or an array of pixels.

        Args:
            name: Name of the image.
            image: The bytes, or `(height, width, channels)` of uint8 or of
                floats in [0, 1], with 1, 3 or 4 channels.
            step: The step to which the image belongs.
        """
        if isinstance(image, bytes):
            image = tf.io.decode_png(image)
        with self._writer.as_default(step=step):
            tf.summary.image(name, image[tf.newaxis])

    def hyperparameters(self, config):
        """Writes the configuration as a table."""
        lines = ["| setting | value |", "|---|---|"]
        for key, value in config.items():
            lines.append(f"| {key} | `{json.dumps(value)}` |")
        with self._writer.as_default(step=0):
            tf.summary.text("hyperparameters", "\n".join(lines))

    def flush(self):
        """Writes buffered events, so that TensorBoard shows them."""
        self._writer.flush()

    def close(self):
        """Closes the event file."""
        self._writer.close()


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


def write_below(bar, text):
    """Writes permanent lines, if the bar is shown."""
    if bar.disable:
        return
    if sys.stderr.isatty():
        bar.write(text, file=sys.stderr)
    else:
        print(text, file=sys.stderr)


def epoch_text(row, epochs):
    """Returns an epoch's row as text, without the parts of the loss."""
    groups = {}
    for key, value in row.items():
        group, _, name = key.partition("/")
        if name and not name.endswith(("_loss", "_rate")):
            groups.setdefault(group, []).append(f"{name} {value:.4f}")
    lines = [f"  {group}: {', '.join(groups[group])}" for group in groups]
    return "\n".join([f"epoch {row['epoch']}/{epochs}", *lines])


def format_time(seconds):
    """Returns seconds as a short text: 59s, 1m01s or 26h00m."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02d}s"
    return f"{seconds // 3600}h{seconds % 3600 // 60:02d}m"


def _line(row):
    for key, value in row.items():
        if isinstance(value, float) and not math.isfinite(value):
            row = {**row, key: None}
    return json.dumps(row, allow_nan=False) + "\n"
