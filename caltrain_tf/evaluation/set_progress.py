"""How many sets are done, on a terminal or in a file."""

import shutil
import sys
import time

_WIDTH = 30


class SetProgress:
    """A bar over the corrupted sets, with the time that is left.

    On a terminal the line is redrawn; elsewhere there is one every tenth.

    Args:
        total: The number of sets.
        verbose: Whether to show anything.
        stream: Where to; standard error if None.
    """

    def __init__(self, total, verbose=True, stream=None):
        """See the class."""
        self._total = total
        self._verbose = verbose
        self._stream = sys.stderr if stream is None else stream
        self._done = 0
        self._start = time.monotonic()

    def __enter__(self):
        """Starts the clock."""
        self._start = time.monotonic()
        return self

    def __exit__(self, *error):
        """Ends the line."""
        if self._verbose and self._stream.isatty():
            self._stream.write("\n")

    def update(self, name):
        """Counts a set.

        Args:
            name: Of the set that is done.
        """
        self._done += 1
        if not self._verbose:
            return
        seconds = time.monotonic() - self._start
        left = seconds / self._done * (self._total - self._done)
        full = _WIDTH * self._done // self._total
        line = (
            f"[{'#' * full}{'.' * (_WIDTH - full)}] {self._done}/{self._total} "
            f"sets, {left:.0f} s left, {name}"
        )
        if self._stream.isatty():
            columns = shutil.get_terminal_size().columns - 1
            self._stream.write(f"\r{line[:columns]:<{columns}}")
        elif self._done * 10 // self._total != (
            (self._done - 1) * 10 // self._total
        ):
            self._stream.write(line + "\n")
        self._stream.flush()
