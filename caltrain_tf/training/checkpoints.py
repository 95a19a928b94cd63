"""Checkpoints, from which a killed, preempted or interrupted run resumes."""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import tempfile
import threading
import time
import urllib.request

import tensorflow as tf

from caltrain_tf import checks

_NEWEST, _BEST = "ckpt", "best"
# Other errors, such as a bucket that does not answer, say nothing about files.
_DAMAGE = (
    tf.errors.DataLossError,
    tf.errors.NotFoundError,
    tf.errors.OutOfRangeError,
)
# Google's machines learn here, and only here, that they are being preempted.
_NOTICE = (
    "http://metadata.google.internal/computeMetadata/v1/instance/preempted"
    "?wait_for_change=true"
)


@dataclasses.dataclass
class Position:
    """The progress of a run, saved inside the checkpoint as JSON."""

    step: int = 0  # Finished steps, of all epochs.
    # Sums of the loss terms over the current epoch, by its phases.
    sums: dict = dataclasses.field(default_factory=dict)

    def advance(self, phase, steps, terms):
        """Counts steps and adds their loss terms to a phase of the epoch."""
        self.step += steps
        sums = self.sums.setdefault(phase, {})
        for name, values in terms.items():
            # One by one, so that the sum does not depend on the executions.
            for value in values:
                sums[name] = sums.get(name, 0.0) + value


class Checkpoints:
    """The newest checkpoints, `ckpt-<step>`, and the best, `best/best-<step>`.

    A thread writes them from a copy of the variables on the host while training
    continues; each save waits for the previous one. `variables` are lists of
    Keras variables by name. Workers other than the `chief` take part, and write
    to a temporary folder.
    """

    def __init__(self, folder, variables, keep=3, chief=True):
        self.folder = folder and os.fspath(folder)
        self.position = Position()
        self._started = time.monotonic()
        self._last = None
        # A variable, so that the writing thread has a copy of it too.
        with tf.device("CPU:0"):
            self._position = tf.Variable("")
        self._checkpoint = tf.train.Checkpoint(
            position=self._position,
            **{name: _raw(values) for name, values in variables.items()},
        )
        self._temporary = None if chief else tempfile.mkdtemp()
        # At least 2, so that there is one to fall back to.
        self._keep = checks.count("keep", keep, low=2)

    def save(self, best=False):
        """Starts to write a checkpoint, after which old ones are removed."""
        if self.folder is None:
            return
        self._started = time.monotonic()
        name, keep, folder = _NEWEST, self._keep, self._temporary or self.folder
        if best:
            name, keep, folder = _BEST, 1, os.path.join(folder, _BEST)

        def written(path):
            # A killed process may leave an incomplete checkpoint, or a complete
            # one that the manager does not know and would never remove.
            for left in tf.io.gfile.glob(f"{folder}/{name}-*_temp*"):
                tf.io.gfile.rmtree(left)
            paths = _oldest_first(folder, name)
            for old in paths[: paths.index(path) + 1][:-keep]:
                for file in tf.io.gfile.glob(f"{old}.*"):
                    tf.io.gfile.remove(file)

        options = tf.train.CheckpointOptions(
            enable_async=True,
            experimental_io_device=_io_device(),
            experimental_write_callbacks=[written],
        )
        self._position.assign(json.dumps(vars(self.position)))
        self._checkpoint.sync()
        manager = tf.train.CheckpointManager(
            self._checkpoint, folder, keep, checkpoint_name=name
        )
        self._last = manager.save(self.position.step, options=options)

    def age(self):
        """Returns the seconds since the last `save`, or since the start."""
        return time.monotonic() - self._started

    def restore(self):
        """Restores the newest whole checkpoint; returns its path, or None."""
        if self.folder is None:
            return None
        path = _restore_newest(self.folder, _NEWEST, self._checkpoint)
        if path is not None:
            vars(self.position).update(json.loads(self._position.numpy()))
        return path

    def wait(self):
        """Waits until all checkpoints are written."""
        self._checkpoint.sync()
        if self._last and not tf.io.gfile.exists(f"{self._last}.index"):
            raise OSError(f"A checkpoint could not be written: {self._last}")

    def close(self):
        """Waits, and removes the temporary folder of a worker."""
        self._checkpoint.sync()
        if self._temporary:
            shutil.rmtree(self._temporary, ignore_errors=True)


def restore_model(folder, model, which="newest"):
    """Restores only the weights of a model, and returns the checkpoint's path.

    Args:
        folder: The `checkpoints` folder of a run.
        model: A model of the same architecture.
        which: `"newest"` or `"best"`.
    """
    places = {"newest": (folder, _NEWEST), "best": (f"{folder}/best", _BEST)}
    checks.choice("which", which, places)
    checkpoint = tf.train.Checkpoint(model=_raw(model.weights))
    path = _restore_newest(*places[which], checkpoint)
    if path is None:
        raise ValueError(f"No checkpoint was found. Received: {folder!r}")
    return path


class Preempted(SystemExit):
    """Ends the process with code 143 after the checkpoint is written."""

    def __init__(self):
        super().__init__(128 + int(signal.SIGTERM))  # As a shell reports it.


class StopSignal(contextlib.ExitStack):
    """A context that records that the run is to stop, in `received`.

    A second SIGTERM ends the process at once. With `saves`, Ctrl-C is recorded
    too, and a second one interrupts. Google's notice counts as SIGTERM.
    """

    def __init__(self, saves=True):
        super().__init__()
        self.received, self._count = None, 0
        if _is_on_google_cloud():
            threading.Thread(target=self._await_notice, daemon=True).start()
        # No other thread can handle signals.
        if threading.current_thread() is threading.main_thread():
            for number in [signal.SIGTERM, *([signal.SIGINT] if saves else [])]:
                previous = signal.signal(number, self._note)
                self.callback(signal.signal, number, previous)

    def stop(self):
        """Raises the exception that ends the run; call it after saving."""
        if self.received == signal.SIGINT:
            raise KeyboardInterrupt
        raise Preempted

    def _note(self, number, frame):
        self._count += 1  # Without Google's notice, which SIGTERM follows.
        if self._count > 1 and number == signal.SIGTERM:
            os._exit(128 + number)
        if number == signal.SIGINT:
            if self.received is not None:
                raise KeyboardInterrupt
            # Not `sys.stderr`, because the signal may interrupt its `write`.
            text = b"\nStopping after this step; Ctrl-C again stops at once.\n"
            os.write(2, text)
        self.received = number

    def _await_notice(self):
        headers = {"Metadata-Flavor": "Google"}
        request = urllib.request.Request(_NOTICE, headers=headers)
        # Without an answer, SIGTERM still comes.
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(request) as answer:
                if answer.read() == b"TRUE":
                    self.received = signal.SIGTERM


def _is_on_google_cloud():
    vendor = pathlib.Path("/sys/class/dmi/id/sys_vendor")
    return vendor.exists() and vendor.read_text().strip() == "Google"


def _io_device():
    # By default, the host of the variables reads and writes, which may be
    # another machine with its own file system.
    with tf.device("CPU:0"):
        return tf.zeros([]).device


def _raw(variables):
    # Asynchronous saving does not support Keras variables.
    return [variable.value for variable in variables]


def _oldest_first(folder, name):
    # `exists` raises if a bucket does not answer; `isdir` would return False.
    if not tf.io.gfile.exists(folder):
        return []
    pattern = re.compile(rf"{name}-(\d+)\.index")
    matches = map(pattern.fullmatch, tf.io.gfile.listdir(folder))
    numbers = sorted(int(match[1]) for match in matches if match)
    return [os.path.join(folder, f"{name}-{number}") for number in numbers]


def _restore_newest(folder, name, checkpoint):
    """Restores the newest whole checkpoint; None if there are none at all."""
    device, path = _io_device(), folder
    options = tf.train.CheckpointOptions(experimental_io_device=device)
    try:
        paths = _oldest_first(folder, name)
        for path in reversed(paths):
            try:
                # Reads the table of contents before any variable is changed,
                # with errors of types that TensorFlow's Python reader lacks.
                with tf.device(device):
                    tf.raw_ops.RestoreV2(
                        prefix=path,
                        tensor_names=["_CHECKPOINTABLE_OBJECT_GRAPH"],
                        shape_and_slices=[""],
                        dtypes=[tf.string],
                    )
                status = checkpoint.restore(path, options).expect_partial()
                status.assert_existing_objects_matched()
                return path
            except _DAMAGE as error:
                reason = _reason(error)
                checks.warn(f"{path} is damaged and passed over: {reason}")
    except (AssertionError, ValueError) as error:
        raise ValueError(
            f"The checkpoint {path} is of another model or optimizer: "
            f"{_reason(error)}"
        ) from error
    except (OSError, tf.errors.OpError) as error:
        raise OSError(
            f"{path} cannot be read now. Try again later. "
            f"Cause: {type(error).__name__}: {_reason(error)}"
        ) from error
    if paths:
        raise ValueError(
            "All checkpoints of the run are damaged. Remove them to begin "
            f"anew. Received: folder={os.fspath(folder)!r}"
        )
    return None


def _reason(error):
    # TensorFlow begins with the operation, in double braces.
    return re.sub(r"\{\{.*?\}\} ", "", str(error)).partition("\n")[0]
