"""Checkpoints, from which a killed, preempted or interrupted run resumes."""

import json
import os
import re
import shutil
import signal
import tempfile
import threading
import warnings

import tensorflow as tf

from caltrain_tf.training.strategy import is_multi_worker

_NEWEST, _BEST = "ckpt", "best"
# The name of TensorFlow's own entry in every checkpoint.
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


class Position:
    """The progress of a run, saved inside the checkpoint as JSON.

    Attributes:
        epoch: Number of finished epochs.
        step: Number of finished optimizer steps.
        step_in_epoch: Number of finished steps of the current epoch.
        sums: Sums of the loss terms over the current epoch, by its parts.
        best: Lowest value of the metric that selects the best checkpoint.
    """

    def __init__(self):
        self.epoch = 0
        self.step = 0
        self.step_in_epoch = 0
        self.sums = {}
        self.best = None

    def advance(self, part, steps, terms):
        """Counts steps and adds their loss terms to a part of the epoch."""
        self.step += steps
        self.step_in_epoch += steps
        sums = self.sums.setdefault(part, {})
        for name, value in terms.items():
            sums[name] = sums.get(name, 0.0) + value

    def end_epoch(self):
        """Moves on to the next epoch."""
        self.epoch += 1
        self.step_in_epoch = 0
        self.sums = {}


class Checkpoints:
    """The newest checkpoints of a run, and the best one.

    `<folder>/ckpt-<step>` are the newest, `<folder>/best/best-<step>` is the
    best. A thread writes them from a copy of the variables on the host while
    training continues; each save waits for the previous one, and `wait` waits
    for all of them. TensorFlow writes a checkpoint to a temporary path and then
    moves it; files that a killed process leaves incomplete are detected by
    their checksums when they are read.

    Args:
        folder: The folder of the checkpoints.
        model: The model.
        others: Lists of further Keras variables, by name.
        keep: How many of the newest checkpoints to keep, at least 2, so that
            there is one to fall back to.
        chief: Whether this process writes into the folder. Other workers have
            to take part in saving, and write to a temporary folder.

    Attributes:
        position: The `Position`, which `restore` sets.
    """

    def __init__(self, folder, model, others=None, keep=3, chief=True):
        if keep < 2:
            raise ValueError(
                "`keep` must be at least 2: a damaged checkpoint needs one "
                f"before it. Received: keep={keep}"
            )
        self.folder = os.fspath(folder)
        self.position = Position()
        # A variable, so that the writing thread has a copy of it too.
        with tf.device("CPU:0"):
            self._position = tf.Variable("")
        self._thrown_away = None if chief else tempfile.mkdtemp()
        written = self._thrown_away or self.folder
        lists = {"model": model.weights, **(others or {})}
        checkpoint = tf.train.Checkpoint(
            position=self._position,
            **{name: _raw(variables) for name, variables in lists.items()},
        )
        self._checkpoint = checkpoint
        self._managers = {
            _NEWEST: tf.train.CheckpointManager(checkpoint, written, keep),
            _BEST: tf.train.CheckpointManager(
                checkpoint, f"{written}/{_BEST}", 1, checkpoint_name=_BEST
            ),
        }
        self._keep = {_NEWEST: keep, _BEST: 1}
        self._last = None

    def save(self):
        """Starts to write a checkpoint, after which old ones are removed."""
        self._save(_NEWEST)

    def save_best(self):
        """Starts to write the best checkpoint and then removes the old one."""
        self._save(_BEST)

    def restore(self):
        """Restores the newest checkpoint that is not damaged.

        Returns:
            Its path, or None if there is none.
        """
        path = _restore_newest(self.folder, _NEWEST, self._checkpoint)
        if path is not None:
            state = json.loads(self._position.numpy())
            vars(self.position).update(state)
        return path

    def wait(self):
        """Waits until all checkpoints are written."""
        self._checkpoint.sync()
        if self._last and not tf.io.gfile.exists(f"{self._last}.index"):
            raise OSError(f"A checkpoint could not be written: {self._last}")

    def close(self):
        """Waits, and removes the temporary folder of a worker."""
        self._checkpoint.sync()
        if self._thrown_away:
            shutil.rmtree(self._thrown_away, ignore_errors=True)

    def _save(self, name):
        self._position.assign(json.dumps(vars(self.position)))
        manager, keep = self._managers[name], self._keep[name]

        def drop_strays(path):
            # A killed process may leave an incomplete checkpoint, or a complete
            # one that the manager does not know and would never remove.
            for left in tf.io.gfile.glob(f"{manager.directory}/{name}-*_temp*"):
                tf.io.gfile.rmtree(left)
            paths = _oldest_first(manager.directory, name)
            for old in paths[: paths.index(path) + 1][:-keep]:
                for file in tf.io.gfile.glob(f"{old}.*"):
                    tf.io.gfile.remove(file)

        options = tf.train.CheckpointOptions(
            enable_async=True,
            experimental_io_device=_io_device(),
            experimental_write_callbacks=[drop_strays],
        )
        self._last = manager.save(self.position.step, options=options)


def restore_model(folder, model, which="newest"):
    """Restores only the weights of a model, for evaluation.

    Args:
        folder: The `checkpoints` folder of a run.
        model: A model of the same architecture.
        which: `"newest"` or `"best"`.

    Returns:
        The path of the checkpoint.
    """
    places = {"newest": (folder, _NEWEST), "best": (f"{folder}/best", _BEST)}
    if which not in places:
        raise ValueError(
            f'`which` must be "newest" or "best". Received: which={which!r}'
        )
    checkpoint = tf.train.Checkpoint(model=_raw(model.weights))
    path = _restore_newest(*places[which], checkpoint)
    if path is None:
        raise ValueError(
            f"No checkpoint was found. Received: folder={folder!r}"
        )
    return path


class Preempted(SystemExit):
    """Ends the process with code 143 after the checkpoint is written."""

    def __init__(self):
        # The code that a shell reports for a process ended by SIGTERM.
        super().__init__(128 + int(signal.SIGTERM))


class StopSignal:
    """A context that records SIGTERM instead of ending the process.

    A preempted machine receives SIGTERM. With several workers, a signal to one
    of them stops all at the same step. Only the main thread of a program can
    handle signals; in other threads the context does nothing.

    Args:
        strategy: The strategy of the run.
        saves: Whether the run writes checkpoints. Ctrl-C is then recorded too,
            and a second Ctrl-C interrupts at once.
    """

    def __init__(self, strategy, saves=True):
        self._strategy = strategy
        self._numbers = [signal.SIGTERM, *([signal.SIGINT] if saves else [])]
        self._received = None
        self._previous = {}
        self._sum = tf.function(self._sum_over_replicas, autograph=False)

    def __enter__(self):
        """Installs the signal handlers."""
        if threading.current_thread() is threading.main_thread():
            for number in self._numbers:
                self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *error):
        """Restores the previous signal handlers."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def requested(self):
        """Returns whether to stop now; all workers get the same answer."""
        if not is_multi_worker(self._strategy):
            return self._received is not None
        here = tf.constant(float(self._received is not None))
        return bool(self._sum(here) > 0)

    def stop(self):
        """Raises the exception that ends the run; call it after saving."""
        if self._received == signal.SIGINT:
            raise KeyboardInterrupt
        raise Preempted

    def _note(self, number, frame):
        del frame
        if number == signal.SIGINT:
            if self._received is not None:
                raise KeyboardInterrupt
            # Not `sys.stderr`, because the signal may interrupt its `write`.
            os.write(
                2, b"\nStopping after this step; Ctrl-C again stops at once.\n"
            )
        self._received = number

    def _sum_over_replicas(self, value):
        per_replica = self._strategy.run(tf.identity, args=(value,))
        return self._strategy.reduce("SUM", per_replica, axis=None)


def _io_device():
    """Returns a device of this process for reading and writing checkpoints.

    By default TensorFlow uses the host of the variables, which may be another
    machine with its own file system.
    """
    with tf.device("CPU:0"):
        return tf.zeros([]).device


def _raw(variables):
    # Asynchronous saving does not support Keras variables.
    return [variable.value for variable in variables]


def _oldest_first(folder, name):
    if not tf.io.gfile.isdir(folder):
        return []
    pattern = re.compile(rf"{name}-(\d+)\.index")
    matches = map(pattern.fullmatch, tf.io.gfile.listdir(folder))
    numbers = sorted(int(match[1]) for match in matches if match)
    return [os.path.join(folder, f"{name}-{number}") for number in numbers]


def _restore_newest(folder, name, checkpoint):
    """Restores the newest checkpoint that is not damaged.

    Damaged checkpoints, found by TensorFlow's checksums, are skipped.
    """
    half_restored = False
    options = tf.train.CheckpointOptions(experimental_io_device=_io_device())
    for path in reversed(_oldest_first(folder, name)):
        try:
            # Reads the table of contents before any variable is changed. The
            # type of the exception depends on the damage.
            reader = tf.compat.v1.train.NewCheckpointReader(path)
            reader.get_tensor(_OBJECT_GRAPH)
        except Exception as error:
            _warn_of_damage(path, error)
            continue
        try:
            status = checkpoint.restore(path, options).expect_partial()
            status.assert_existing_objects_matched()
            return path
        except (AssertionError, ValueError) as error:
            raise ValueError(
                f"The checkpoint {path} is of another model or optimizer: "
                f"{str(error).splitlines()[0]}"
            ) from error
        except tf.errors.OpError as error:
            half_restored = True
            _warn_of_damage(path, error)
    if half_restored:
        raise ValueError(
            "No checkpoint of the run can be read. Remove them to begin anew. "
            f"Received: folder={os.fspath(folder)!r}"
        )
    return None


def _warn_of_damage(path, error):
    reason = str(error).splitlines()[0]
    warnings.warn(
        f"The checkpoint {path} is damaged and passed over: {reason}",
        stacklevel=5,
    )
