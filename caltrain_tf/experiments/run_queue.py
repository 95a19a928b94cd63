"""The runs that are still to be done, in this process's memory."""

import collections


class RunQueue:
    """Runs in their order; `StorageQueue` is the same for many machines.

    Args:
        settings: The `Setting`s to run.
    """

    def __init__(self, settings):
        """Nothing is taken yet."""
        self._waiting = collections.deque(settings)

    def take(self):
        """The next run, or None where there is none to take now."""
        return self._waiting.popleft() if self._waiting else None

    def finish(self, setting, failure=""):
        """A run that was taken has ended, maybe in a failure."""

    def put_back(self, setting):
        """A run that was taken was stopped."""
        self._waiting.appendleft(setting)

    def count_left(self):
        """Returns `(waiting, running elsewhere)`."""
        return len(self._waiting), 0

    def failed_elsewhere(self):
        """Returns pairs of a run that failed elsewhere, and why."""
        return []

    def close(self):
        """No more will be taken."""
