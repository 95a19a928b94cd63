"""Checkpoints that survive being killed while they are written."""

import json
import os
import re
import shutil
import tempfile
import warnings

import tensorflow as tf


class Position(tf.train.experimental.PythonState):
    """Where a run is. Saved inside the checkpoint, as JSON.

    Attributes:
        epoch: Epochs that are done.
        step: Optimizer steps that are done.
        step_in_epoch: Those of the epoch under way.
        sums: Sums of the loss terms over the epoch under way, by part of it.
        best: Lowest value of the metric that picks the best checkpoint.
    """

    def __init__(self):
        """The beginning."""
        super().__init__()
        self.epoch = 0
        self.step = 0
        self.step_in_epoch = 0
        self.sums = {}
        self.best = None

    def add(self, part, terms):
        """Adds loss terms to the sums of a part of the epoch."""
        sums = self.sums.setdefault(part, {})
        for name, value in terms.items():
            sums[name] = sums.get(name, 0.0) + value

    def end_epoch(self):
        """Moves on to the next epoch."""
        self.epoch += 1
        self.step_in_epoch = 0
        self.sums = {}

    def serialize(self):
        """The attributes as JSON."""
        names = ("epoch", "step", "step_in_epoch", "sums", "best")
        return json.dumps({name: getattr(self, name) for name in names})

    def deserialize(self, string_value):
        """Sets the attributes from JSON."""
        for name, value in json.loads(string_value).items():
            setattr(self, name, value)


class Checkpoints:
    """The newest checkpoints of a run, and the best one.

    `<folder>/ckpt-<step>` are the newest, `<folder>/best/best-<step>` is the
    best. TensorFlow writes a checkpoint next to its place and moves it there;
    what a kill may leave is found by the checksums when it is read.

    Args:
        folder: Where they are.
        objects: What they hold, as `tf.train.Checkpoint` takes it: `model`,
            `optimizer` and `position` among others.
        keep: How many of the newest to keep, at least 2: one to fall back to.
        chief: Whether this process writes into the folder. Other workers have
            to take part in saving, and write to a place that is thrown away.
    """

    def __init__(self, folder, objects, keep=3, chief=True):
        """Makes the managers; reads and writes nothing yet."""
        if keep < 2:
            raise ValueError(
                "`keep` must be at least 2: a damaged checkpoint needs one "
                f"before it. Received: keep={keep}"
            )
        self.folder = os.fspath(folder)
        self.keep = keep
        self._checkpoint = tf.train.Checkpoint(**objects)
        self._thrown_away = None if chief else tempfile.mkdtemp()
        written = self._thrown_away or self.folder
        self._newest = tf.train.CheckpointManager(
            self._checkpoint, written, max_to_keep=keep
        )
        self._best = tf.train.CheckpointManager(
            self._checkpoint,
            os.path.join(written, "best"),
            max_to_keep=1,
            checkpoint_name="best",
        )

    def save(self, step):
        """Writes a checkpoint, then drops what is too old."""
        _save(self._newest, "ckpt", self.keep, step)

    def save_best(self, step):
        """Writes the best checkpoint, then drops the one that was."""
        _save(self._best, "best", 1, step)

    def restore(self):
        """Restores the newest checkpoint that is whole.

        Returns:
            Its path, or None where there is none.
        """
        path = newest_whole(self.folder, "ckpt")
        if path is not None:
            _restore(self._checkpoint, path)
        return path

    def close(self):
        """Removes what a worker that is not the chief has written."""
        if self._thrown_away:
            shutil.rmtree(self._thrown_away, ignore_errors=True)


def restore_model(folder, model, which="newest"):
    """Restores a model's weights alone, for evaluation.

    Args:
        folder: The folder `checkpoints` of a run.
        model: A model of the same architecture.
        which: `"newest"` or `"best"`.

    Returns:
        The path of the checkpoint.
    """
    places = {"newest": (folder, "ckpt"), "best": (f"{folder}/best", "best")}
    if which not in places:
        raise ValueError(
            f'`which` must be "newest" or "best". Received: which={which!r}'
        )
    path = newest_whole(*places[which])
    if path is None:
        raise ValueError(
            f"No checkpoint was found. Received: folder={folder!r}"
        )
    _restore(tf.train.Checkpoint(model=model), path)
    return path


def newest_whole(folder, name):
    """The newest checkpoint that can be read, whatever the state file says."""
    return next(filter(_is_whole, reversed(_oldest_first(folder, name))), None)


def _oldest_first(folder, name):
    if not tf.io.gfile.isdir(folder):
        return []
    pattern = re.compile(rf"{name}-(\d+)\.index")
    matches = map(pattern.fullmatch, tf.io.gfile.listdir(folder))
    numbers = sorted(int(match[1]) for match in matches if match)
    return [os.path.join(folder, f"{name}-{number}") for number in numbers]


def _save(manager, name, keep, step):
    path = manager.save(checkpoint_number=step)
    # A kill may leave a half-written checkpoint, or a whole one that the
    # manager does not know of and would never drop.
    for left in tf.io.gfile.glob(f"{manager.directory}/{name}-*_temp*"):
        tf.io.gfile.rmtree(left)
    paths = _oldest_first(manager.directory, name)
    for old in paths[: paths.index(path) + 1][:-keep]:
        for file in tf.io.gfile.glob(f"{old}.*"):
            tf.io.gfile.remove(file)


def _is_whole(path):
    # Before any variable is touched. Reading compares TensorFlow's checksums,
    # and depending on the damage raises almost anything.
    try:
        reader = tf.train.load_checkpoint(path)
        for key in reader.get_variable_to_shape_map():
            reader.get_tensor(key)
    except Exception as error:
        reason = str(error).splitlines()[0]
        warnings.warn(
            f"The checkpoint {path} is damaged and passed over: {reason}",
            stacklevel=4,
        )
        return False
    return True


def _restore(checkpoint, path):
    try:
        status = checkpoint.restore(path)
        status.expect_partial().assert_existing_objects_matched()
    except (AssertionError, ValueError) as error:
        raise ValueError(
            f"The checkpoint {path} is of another model or optimizer: "
            f"{str(error).splitlines()[0]}"
        ) from error
