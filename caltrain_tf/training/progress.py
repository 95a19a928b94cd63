"""How far training is, on a terminal or in a file."""

import shutil
import sys
import time


class Progress:
    """A line with the loss, its parts, the rate and the time left.

    On a terminal the line is redrawn; elsewhere a new one is written now and
    then.

    Args:
        total_steps: The steps of the whole run.
        first_step: Those that are done already.
        batch_size: Examples of a step, or None where batches differ.
        stream: Where to write; standard error if None.
        seconds_between_lines: How often, where it is not a terminal.
    """

    def __init__(
        self,
        total_steps,
        first_step=0,
        batch_size=None,
        stream=None,
        seconds_between_lines=30.0,
    ):
        """Starts the clock."""
        self.total_steps = total_steps
        self.first_step = first_step
        self.batch_size = batch_size
        self.stream = sys.stderr if stream is None else stream
        self.is_terminal = self.stream.isatty()
        self.seconds_between = (
            0.1 if self.is_terminal else seconds_between_lines
        )
        self.start = time.monotonic()
        self.last_shown = -float("inf")

    def update(self, step, epoch, epochs, terms):
        """Shows the state after a step, unless a line was shown just now."""
        now = time.monotonic()
        if now - self.last_shown < self.seconds_between:
            return
        self.last_shown = now
        line = self._line(step, epoch, epochs, terms)
        if self.is_terminal:
            columns = shutil.get_terminal_size().columns
            self.stream.write(f"\r{line[: columns - 1]:<{columns - 1}}")
        else:
            self.stream.write(line + "\n")
        self.stream.flush()

    def note(self, text):
        """Writes a line that stays."""
        if self.is_terminal:
            columns = shutil.get_terminal_size().columns
            self.stream.write("\r" + " " * (columns - 1) + "\r")
        self.stream.write(text + "\n")
        self.stream.flush()
        self.last_shown = -float("inf")

    def rate(self, step):
        """Examples, or else steps, of a second, since the clock started."""
        seconds = max(time.monotonic() - self.start, 1e-9)
        return (step - self.first_step) * (self.batch_size or 1) / seconds

    def _line(self, step, epoch, epochs, terms):
        unit = "steps/s" if self.batch_size is None else "examples/s"
        rate = self.rate(step)
        left = "?"
        if rate > 0:
            steps_left = self.total_steps - step
            left = format_time(steps_left * (self.batch_size or 1) / rate)
        values = "  ".join(f"{name} {terms[name]:.4f}" for name in terms)
        return (
            f"epoch {epoch}/{epochs}  step {step}/{self.total_steps}  "
            f"{values}  {rate:,.0f} {unit}  {left} left"
        )


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
