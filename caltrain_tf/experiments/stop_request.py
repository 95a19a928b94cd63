"""Ctrl-C and SIGTERM as a wish, which a loop fulfils when it can."""

import signal
import threading


class StopRequest:
    """Counts SIGINT and SIGTERM instead of dying of them, while entered.

    Only the main thread of a program can watch for signals; elsewhere nothing
    changes.

    Attributes:
        count: How many came; the second one is impatient.
        number: The number of the last one.
    """

    def __init__(self):
        """Nothing has come yet."""
        self.count = 0
        self.number = None
        self._previous = {}

    def __enter__(self):
        """Takes the signals over."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *error):
        """Gives them back."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number, frame):
        del frame
        self.count += 1
        self.number = number
