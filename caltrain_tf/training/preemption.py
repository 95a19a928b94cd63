"""SIGTERM: what a machine sends before it is taken away."""

import signal
import threading

import tensorflow as tf

from caltrain_tf.training.strategy import is_multi_worker

EXIT_CODE = 128 + signal.SIGTERM


class Preempted(SystemExit):
    """Ends the process with code 143 after the checkpoint was written."""

    def __init__(self):
        """As a shell reports a process that SIGTERM ended."""
        super().__init__(int(EXIT_CODE))


class StopSignal:
    """Notes SIGTERM instead of dying of it, while it is entered.

    With several workers, a signal to one of them stops all at the same step.
    Only the main thread of a program can watch for signals; elsewhere nothing
    changes.

    Args:
        strategy: The strategy of the run.
    """

    def __init__(self, strategy):
        """Nothing has come yet."""
        self._strategy = strategy
        self._received = False
        self._previous = None
        self._sum = tf.function(self._sum_over_replicas)

    def __enter__(self):
        """Takes over SIGTERM."""
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGTERM, self._note)
        return self

    def __exit__(self, *error):
        """Gives SIGTERM back."""
        if self._previous is not None:
            signal.signal(signal.SIGTERM, self._previous)

    def requested(self):
        """Whether to stop here; all workers get the same answer."""
        if not is_multi_worker(self._strategy):
            return self._received
        return bool(self._sum(tf.constant(float(self._received))) > 0)

    def _note(self, number, frame):
        del number, frame
        self._received = True

    def _sum_over_replicas(self, value):
        per_replica = self._strategy.run(tf.identity, args=(value,))
        return self._strategy.reduce("SUM", per_replica, axis=None)
