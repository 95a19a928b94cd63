"""What a run leaves behind: log, summaries and checkpoints."""

import math

import tensorflow as tf

from caltrain_tf.training.checkpoints import Checkpoints
from caltrain_tf.training.checkpoints import Position
from caltrain_tf.training.metrics_log import MetricsLog
from caltrain_tf.training.strategy import is_chief
from caltrain_tf.training.strategy import is_multi_worker
from caltrain_tf.training.summaries import Summaries


class Records:
    """The files of a run, and where the run is.

    Args:
        trainer: The `Trainer`.
        run: The `RunFolder`, or None to keep everything in memory.
        keep: How many of the newest checkpoints to keep.
    """

    def __init__(self, trainer, run, keep):
        """Opens the files."""
        self.trainer = trainer
        self.position = Position()
        self.checkpoints = None
        chief = is_chief(trainer.strategy)
        writes = run is not None and chief
        self.log = MetricsLog(run.file("metrics.jsonl") if writes else None)
        self.summaries = Summaries(run.file("summaries") if writes else None)
        if run is not None:
            self.summaries.hyperparameters(run.config)
            folder = run.file("checkpoints")
            self.checkpoints = Checkpoints(folder, self._objects(), keep, chief)

    def resume(self):
        """Goes to the newest checkpoint, and rewinds the log to it."""
        if self.checkpoints is None or self._restore() is None:
            for metric in self.trainer.train_metrics:
                metric.reset_state()
        self.log.rewind(self.position.step)

    def add(self, row):
        """Logs a row of values."""
        self.log.append(row)
        scalars = {key: value for key, value in row.items() if "/" in key}
        self.summaries.scalars(scalars, row["step"])

    def mark_best(self, value):
        """Keeps the weights as the best ones if the value is the lowest."""
        best = self.position.best
        # Written so that NaN is never the best.
        if not value < (math.inf if best is None else best):
            return
        self.position.best = value
        if self.checkpoints is not None:
            self.checkpoints.save_best(self.position.step)

    def save(self):
        """Writes a checkpoint."""
        if self.checkpoints is not None:
            self.checkpoints.save(self.position.step)

    def close(self):
        """Closes the files."""
        self.summaries.close()
        if self.checkpoints is not None:
            self.checkpoints.close()

    def _objects(self):
        model, optimizer = self.trainer.model, self.trainer.optimizer
        metrics = self.trainer.train_metrics
        return {
            "model": model,
            "optimizer": optimizer,
            "position": self.position,
            # Keras does not show TensorFlow the seeds of dropout layers.
            "variables": [*model.variables, *optimizer.variables],
            "metrics": [v for metric in metrics for v in metric.variables],
        }

    def _restore(self):
        strategy = self.trainer.strategy
        with strategy.scope():
            path = self.checkpoints.restore()
        if is_multi_worker(strategy):
            step = tf.constant(float(self.position.step))
            per_replica = strategy.run(tf.identity, args=(step,))
            mean = strategy.reduce("MEAN", per_replica, axis=None)
            if float(mean) != self.position.step:
                raise ValueError(
                    "The workers see different checkpoints; the run's folder "
                    "must be on a file system that all of them share. "
                    f"Received: {path} on this one"
                )
        return path
