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
        return self._newest.save(checkpoint_number=step)

    def save_best(self, step):
        """Writes the best checkpoint, then drops the one that was."""
        return self._best.save(checkpoint_number=step)

    def restore(self):
        """Restores the newest checkpoint that is whole.

        Returns:
            Its path, or None where there is none.
        """
        for path in newest_first(self.folder, "ckpt"):
            if self._restore(path):
                return path
        return None

    def close(self):
        """Removes what a worker that is not the chief has written."""
        if self._thrown_away:
            shutil.rmtree(self._thrown_away, ignore_errors=True)

    def _restore(self, path):
        try:
            status = self._checkpoint.restore(path)
        except tf.errors.OpError as error:
            warnings.warn(
                f"The checkpoint {path} is damaged and passed over: "
                f"{str(error).splitlines()[0]}",
                stacklevel=3,
            )
            return False
        try:
            status.assert_existing_objects_matched()
        except AssertionError as error:
            raise ValueError(
                "The checkpoint is of another model or optimizer. "
                f"Received: {path}"
            ) from error
        return True


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
    for path in newest_first(*places[which]):
        checkpoint = tf.train.Checkpoint(model=model)
        status = checkpoint.restore(path).expect_partial()
        status.assert_existing_objects_matched()
        return path
    raise ValueError(f"No checkpoint was found. Received: folder={folder!r}")


def newest_first(folder, name):
    """The checkpoints in a folder, whatever its state file says."""
    if not tf.io.gfile.isdir(folder):
        return []
    pattern = re.compile(rf"{name}-(\d+)\.index")
    matches = map(pattern.fullmatch, tf.io.gfile.listdir(folder))
    numbers = sorted(int(match[1]) for match in matches if match)
    return [os.path.join(folder, f"{name}-{n}") for n in reversed(numbers)]
