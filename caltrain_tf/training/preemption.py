"""SIGTERM, which a machine sends before it is taken away, and Ctrl-C."""

import os
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
        saves: Whether there is a checkpoint to go on from. Ctrl-C is noted too
            then; a second one interrupts at once.
    """

    def __init__(self, strategy, saves=True):
        """Nothing has come yet."""
        self._strategy = strategy
        self._numbers = [signal.SIGTERM, *([signal.SIGINT] if saves else [])]
        self._received = None
        self._previous = {}
        self._sum = tf.function(self._sum_over_replicas)

    def __enter__(self):
        """Takes over the signals."""
        if threading.current_thread() is threading.main_thread():
            for number in self._numbers:
                self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *error):
        """Gives the signals back."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def requested(self):
        """Whether to stop here; all workers get the same answer."""
        if not is_multi_worker(self._strategy):
            return self._received is not None
        here = tf.constant(float(self._received is not None))
        return bool(self._sum(here) > 0)

    def stop(self):
        """Raises what ends the run, after its checkpoint was written."""
        if self._received == signal.SIGINT:
            raise KeyboardInterrupt
        raise Preempted

    def _note(self, number, frame):
        del frame
        if number == signal.SIGINT:
            if self._received is not None:
                raise KeyboardInterrupt
            # Not `sys.stderr`, in the middle of whose `write` we may be.
            os.write(
                2, b"\nStopping after this step; Ctrl-C again stops at once.\n"
            )
        self._received = number

    def _sum_over_replicas(self, value):
        per_replica = self._strategy.run(tf.identity, args=(value,))
        return self._strategy.reduce("SUM", per_replica, axis=None)
