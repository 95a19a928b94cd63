"""What a run has measured: `metrics.jsonl`, TensorBoard, a progress bar."""

import json
import math
import sys

import tensorflow as tf
import tqdm

from caltrain_tf import files


class MetricsLog:
    """Rows of values, in memory and in a file of JSON lines.

    Holds no times, so that a run that was killed and went on has the log of one
    that was not. A value that is not finite is written as null.

    Args:
        path: The file, or None for memory alone. The rows of a file that is
            there are read.
        writes: Whether to write the file; of several workers only one may.
    """

    def __init__(self, path=None, writes=True):
        self.path = None if path is None else files.as_path(path)
        self.writes = writes and path is not None
        self.rows = []
        if self.path is not None and self.path.exists():
            for line in self.path.read_text().splitlines():
                self.rows.append(json.loads(line))

    def rewind(self, step):
        """Forgets what was logged after a step."""
        self.rows = [row for row in self.rows if row["step"] <= step]
        self._write()

    def append(self, row):
        """Adds a row, which has a `step`."""
        self.rows.append(row)
        self._write()

    def _write(self):
        # All of it, since buckets have no appending: it is some kilobytes.
        if self.writes:
            files.write_text(self.path, "".join(map(_line, self.rows)))


class Summaries:
    """Writes TensorBoard events.

    Args:
        folder: The folder of the events, or None to write nothing.
    """

    def __init__(self, folder=None):
        if folder is None:
            self._writer = tf.summary.create_noop_writer()
        else:
            self._writer = tf.summary.create_file_writer(folder)
        self._writes = folder is not None

    def scalars(self, values, step):
        """Writes numbers under their names."""
        if not self._writes:
            # Even a writer that writes nothing would take a millisecond.
            return
        with self._writer.as_default(step=step):
            for name, value in values.items():
                tf.summary.scalar(name, value)

    def image(self, name, image, step):
        """Writes an image.

        Args:
            name: Its name.
            image: The bytes of a PNG file, or an array `(height, width, 1, 3 or
                4)` of uint8 or of floats in [0, 1].
            step: The step that it belongs to.
        """
        if isinstance(image, bytes):
            image = tf.io.decode_png(image)
        image = tf.convert_to_tensor(image)
        if image.shape.rank != 3 or image.shape[-1] not in (1, 3, 4):
            raise ValueError(
                "`image` must be PNG bytes or an array (height, width, "
                f"channels). Received: shape={tuple(image.shape)}"
            )
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
        """Makes TensorBoard see what was written."""
        self._writer.flush()

    def close(self):
        """Closes the event file."""
        self._writer.close()


def progress_bar(total_steps, first_step=0, text="", shown=True):
    """Returns a `tqdm` bar on standard error, over the steps of a run.

    Args:
        total_steps: The steps of the whole run.
        first_step: Those that are done already.
        text: What stands before it.
        shown: Whether to show it.
    """
    is_terminal = sys.stderr.isatty()
    return tqdm.tqdm(
        total=total_steps,
        initial=first_step,
        desc=text,
        unit="step",
        disable=not shown,
        dynamic_ncols=True,
        # A file gets a line now and then.
        mininterval=0.1 if is_terminal else 30,
        bar_format=None if is_terminal else "{l_bar}{bar:10}{r_bar}\n",
    )


def write_below(bar, text):
    """Writes lines that stay, if the bar is shown."""
    if bar.disable:
        return
    if sys.stderr.isatty():
        bar.write(text, file=sys.stderr)
    else:
        print(text, file=sys.stderr)


def epoch_text(row, epochs):
    """The row of an epoch for a terminal; leaves out the parts of the loss."""
    groups = {}
    for key, value in row.items():
        group, _, name = key.partition("/")
        if name and not name.endswith(("_loss", "_rate")):
            groups.setdefault(group, []).append(f"{name} {value:.4f}")
    lines = [f"  {group}: {', '.join(groups[group])}" for group in groups]
    return "\n".join([f"epoch {row['epoch']}/{epochs}", *lines])


def format_time(seconds):
    """Seconds as people write them.

    Example:
        >>> format_time(59), format_time(61), format_time(3600 * 26)
        ('59s', '1m01s', '26h00m')
    """
    seconds = int(round(seconds))
    if seconds < 60:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02d}s"
    return f"{seconds // 3600}h{seconds % 3600 // 60:02d}m"


def _line(row):
    values = {
        key: None
        if isinstance(value, float) and not math.isfinite(value)
        else value
        for key, value in row.items()
    }
    return json.dumps(values, allow_nan=False) + "\n"
