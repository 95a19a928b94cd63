"""How a run goes on after it was killed, preempted or interrupted."""

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
    """Where a run is. Saved inside the checkpoint, as JSON.

    Attributes:
        epoch: Epochs that are done.
        step: Optimizer steps that are done.
        step_in_epoch: Those of the epoch under way.
        sums: Sums of the loss terms over the epoch under way, by part of it.
        best: Lowest value of the metric that picks the best checkpoint.
    """

    def __init__(self):
        self.epoch = 0
        self.step = 0
        self.step_in_epoch = 0
        self.sums = {}
        self.best = None

    def advance(self, part, steps, terms):
        """Counts steps, and adds their loss terms to a part of the epoch."""
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
    best. They are written by a thread, from a copy of the variables on the
    host, while training goes on; a save first waits for the one before it, and
    `wait` for all. TensorFlow writes a checkpoint next to its place and moves
    it there; what a kill may leave is found by the checksums when it is read.

    Args:
        folder: Where they are.
        model: The model.
        others: Lists of further Keras variables, by name.
        keep: How many of the newest to keep, at least 2: one to fall back to.
        chief: Whether this process writes into the folder. Other workers have
            to take part in saving, and write to a place that is thrown away.

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
        # A variable, so that the thread that writes has a copy of it too.
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
        """Begins to write a checkpoint; then those that are too old go."""
        self._save(_NEWEST)

    def save_best(self):
        """Begins to write the best checkpoint; then the one before goes."""
        self._save(_BEST)

    def restore(self):
        """Restores the newest checkpoint that is whole.

        Returns:
            Its path, or None where there is none.
        """
        path = _restore_newest(self.folder, _NEWEST, self._checkpoint)
        if path is not None:
            state = json.loads(self._position.numpy())
            vars(self.position).update(state)
        return path

    def wait(self):
        """Returns once everything that was saved is in the folder."""
        self._checkpoint.sync()
        if self._last and not tf.io.gfile.exists(f"{self._last}.index"):
            raise OSError(f"A checkpoint could not be written: {self._last}")

    def close(self):
        """Waits, and removes what others than the chief have written."""
        self._checkpoint.sync()
        if self._thrown_away:
            shutil.rmtree(self._thrown_away, ignore_errors=True)

    def _save(self, name):
        self._position.assign(json.dumps(vars(self.position)))
        manager, keep = self._managers[name], self._keep[name]

        def drop_strays(path):
            # A kill may leave a half-written checkpoint, or a whole one that
            # the manager does not know of and would never drop.
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
    """Restores a model's weights alone, for evaluation.

    Args:
        folder: The folder `checkpoints` of a run.
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
    """Ends the process with code 143 after the checkpoint was written."""

    def __init__(self):
        # As a shell reports a process that SIGTERM ended.
        super().__init__(128 + int(signal.SIGTERM))


class StopSignal:
    """Notes SIGTERM instead of dying of it, while it is entered.

    SIGTERM is what a machine gets before it is taken away. With several
    workers, a signal to one of them stops all at the same step. Only the main
    thread of a program can watch for signals; elsewhere nothing changes.

    Args:
        strategy: The strategy of the run.
        saves: Whether there is a checkpoint to go on from. Ctrl-C is noted too
            then; a second one interrupts at once.
    """

    def __init__(self, strategy, saves=True):
        self._strategy = strategy
        self._numbers = [signal.SIGTERM, *([signal.SIGINT] if saves else [])]
        self._received = None
        self._previous = {}
        self._sum = tf.function(self._sum_over_replicas, autograph=False)

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


def _io_device():
    """This process, where the variables may be those of another host.

    TensorFlow would have that host write into its own file system.
    """
    with tf.device("CPU:0"):
        return tf.zeros([]).device


def _raw(variables):
    # Keras' own objects do not take part in asynchronous saving.
    return [variable.value for variable in variables]


def _oldest_first(folder, name):
    if not tf.io.gfile.isdir(folder):
        return []
    pattern = re.compile(rf"{name}-(\d+)\.index")
    matches = map(pattern.fullmatch, tf.io.gfile.listdir(folder))
    numbers = sorted(int(match[1]) for match in matches if match)
    return [os.path.join(folder, f"{name}-{number}") for number in numbers]


def _restore_newest(folder, name, checkpoint):
    """Restores the newest checkpoint that is whole.

    A damaged one is passed over. Reading compares TensorFlow's checksums.
    """
    half_restored = False
    options = tf.train.CheckpointOptions(experimental_io_device=_io_device())
    for path in reversed(_oldest_first(folder, name)):
        try:
            # What is in it, before any variable is touched; depending on the
            # damage it raises anything.
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
