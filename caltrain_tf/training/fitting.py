"""The epochs of a run: phases, evaluations, logs and checkpoints."""

import contextlib
import dataclasses
from collections.abc import Callable

import tensorflow as tf

from caltrain_tf.training import batches
from caltrain_tf.training.checkpoints import Checkpoints
from caltrain_tf.training.checkpoints import Position
from caltrain_tf.training.execution import metric_values
from caltrain_tf.training.metrics_log import MetricsLog
from caltrain_tf.training.preemption import Preempted
from caltrain_tf.training.preemption import StopSignal
from caltrain_tf.training.progress import Progress
from caltrain_tf.training.run_folder import RunFolder
from caltrain_tf.training.strategy import is_chief
from caltrain_tf.training.strategy import is_multi_worker
from caltrain_tf.training.summaries import Summaries

DEFAULT_BEST = "calibration/negative_log_likelihood"


@dataclasses.dataclass
class Phase:
    """A part of an epoch: which data, under which name in the logs."""

    name: str
    argument: str
    source: tf.data.Dataset | Callable
    steps: int | None

    def data(self, epoch):
        """The batches of an epoch."""
        dataset = self.source(epoch) if callable(self.source) else self.source
        if not isinstance(dataset, tf.data.Dataset):
            raise ValueError(
                f"`{self.argument}` must be a `tf.data.Dataset` or a callable "
                f"that returns one. Received: {dataset!r}"
            )
        return dataset


class Fitting:
    """One call of `Trainer.fit`, whose arguments these are."""

    def __init__(
        self,
        trainer,
        phases,
        executions,
        epochs,
        evaluations,
        evaluate_every,
        best,
        checkpoint_every_steps,
        on_epoch_end,
    ):
        """Counts the steps of an epoch and checks the batches."""
        self.trainer = trainer
        self.strategy = trainer.strategy
        self.phases = phases
        self.executions = executions
        self.epochs = epochs
        self.evaluations = evaluations
        self.evaluate_every = evaluate_every
        self.best = best or DEFAULT_BEST
        self.checkpoint_every_steps = checkpoint_every_steps
        self.on_epoch_end = on_epoch_end
        self.position = Position()
        for phase in phases:
            dataset = phase.data(0)
            batches.check_training_batches(self.strategy, dataset)
            phase.steps = batches.count_batches(
                phase.argument, dataset, phase.steps
            )
        self.steps_per_epoch = sum(phase.steps for phase in phases)
        self.batch_size = batches.batch_size(phases[0].data(0))
        self._check_best(best)

    def run(self, run, config, keep, verbose):
        """Trains to the end; returns the log's rows."""
        chief = is_chief(self.strategy)
        with contextlib.ExitStack() as stack:
            if run is not None and not isinstance(run, RunFolder):
                run = stack.enter_context(RunFolder(run, config, chief))
            self._open(run, keep, chief)
            stack.callback(self._close)
            self._resume()
            self.progress = None
            if verbose and chief:
                self.progress = Progress(
                    self.steps_per_epoch * self.epochs,
                    self.position.step,
                    self.batch_size,
                )
            self.stop = stack.enter_context(StopSignal(self.strategy))
            while self.position.epoch < self.epochs:
                self._run_epoch()
                self._end_epoch()
                if self.stop.requested():
                    raise Preempted
        return self.log.rows

    def _open(self, run, keep, chief):
        self.checkpoints = None
        writes = run is not None and chief
        self.log = MetricsLog(run.file("metrics.jsonl") if writes else None)
        self.summaries = Summaries(run.file("summaries") if writes else None)
        if run is None:
            return
        self.summaries.hyperparameters(run.config)
        model, optimizer = self.trainer.model, self.trainer.optimizer
        objects = {
            "model": model,
            "optimizer": optimizer,
            "position": self.position,
            # Keras does not show TensorFlow the seeds of dropout layers.
            "variables": [*model.variables, *optimizer.variables],
            "metrics": [
                variable
                for metric in self.trainer.train_metrics
                for variable in metric.variables
            ],
        }
        self.checkpoints = Checkpoints(
            run.file("checkpoints"), objects, keep, chief
        )

    def _close(self):
        self.summaries.close()
        if self.checkpoints is not None:
            self.checkpoints.close()

    def _resume(self):
        if self.checkpoints is None or self._restore() is None:
            for metric in self.trainer.train_metrics:
                metric.reset_state()
        self.log.rewind(self.position.step)

    def _restore(self):
        with self.strategy.scope():
            path = self.checkpoints.restore()
        if is_multi_worker(self.strategy):
            step = tf.constant(float(self.position.step))
            replicas = self.strategy.num_replicas_in_sync
            total = self.strategy.reduce(
                "SUM", self.strategy.run(tf.identity, args=(step,)), axis=None
            )
            if float(total) != self.position.step * replicas:
                raise ValueError(
                    "The workers see different checkpoints; the run's folder "
                    "must be on a file system that all of them share. "
                    f"Received: {path} on this one"
                )
        return path

    def _run_epoch(self):
        first = 0
        for phase, execution in zip(self.phases, self.executions, strict=True):
            done = self.position.step_in_epoch - first
            if done < phase.steps:
                self._run_phase(phase, execution, done)
            first += phase.steps

    def _run_phase(self, phase, execution, done):
        dataset = phase.data(self.position.epoch).skip(done)
        iterator = iter(batches.distribute(self.strategy, dataset))
        while done < phase.steps:
            count = self._steps_ahead(phase.steps - done)
            terms = execution.train(iterator, count, self.position.step)
            done += count
            self.position.step += count
            self.position.step_in_epoch += count
            self.position.add(phase.name, terms)
            means = {name: value / count for name, value in terms.items()}
            self._show(phase, means)
            self._save_inside_epoch()

    def _steps_ahead(self, remaining):
        count = min(self.trainer.steps_per_execution, remaining)
        if self.checkpoint_every_steps:
            every = self.checkpoint_every_steps
            count = min(count, every - self.position.step % every)
        return count

    def _show(self, phase, means):
        step = self.position.step
        scalars = {f"batch/{phase.name}/{key}": means[key] for key in means}
        if self.progress is not None:
            epoch = self.position.epoch + 1
            self.progress.update(step, epoch, self.epochs, means)
            scalars["batch/rate"] = self.progress.rate(step)
        self.summaries.scalars(scalars, step)

    def _save_inside_epoch(self):
        # At its end the epoch is finished first, which saves too.
        if self.position.step_in_epoch == self.steps_per_epoch:
            return
        every = self.checkpoint_every_steps
        stop = self.stop.requested()
        if stop or (every and self.position.step % every == 0):
            self._save()
        if stop:
            raise Preempted

    def _end_epoch(self):
        row = {"epoch": self.position.epoch + 1, "step": self.position.step}
        for phase in self.phases:
            sums = self.position.sums[phase.name]
            for name, value in sums.items():
                row[f"{phase.name}/{name}"] = value / phase.steps
        row.update(_prefixed("train", _take(self.trainer.train_metrics)))
        rate = tf.convert_to_tensor(self.trainer.optimizer.learning_rate)
        row["train/learning_rate"] = float(rate)
        self.position.end_epoch()
        last = self.position.epoch == self.epochs
        if last or self.position.epoch % self.evaluate_every == 0:
            for name, dataset in self.evaluations.items():
                row.update(_prefixed(name, self.trainer.evaluate(dataset)))
        self.log.append(row)
        self.summaries.scalars(
            {key: row[key] for key in row if "/" in key}, self.position.step
        )
        if self.on_epoch_end is not None:
            self.on_epoch_end(row, self.summaries)
        self.summaries.flush()
        if self.progress is not None:
            self.progress.note(_epoch_line(row, self.epochs))
        self._mark_best(row)
        self._save()

    def _mark_best(self, row):
        value = row.get(self.best)
        if value is None:
            return
        # Written so that NaN is never the best.
        if self.position.best is None or value < self.position.best:
            self.position.best = value
            if self.checkpoints is not None:
                self.checkpoints.save_best(self.position.step)

    def _save(self):
        if self.checkpoints is not None:
            self.checkpoints.save(self.position.step)

    def _check_best(self, best):
        names = {metric.name for metric in self.trainer.eval_metrics} | {"loss"}
        logged = {f"{e}/{name}" for e in self.evaluations for name in names}
        if best is not None and best not in logged:
            raise ValueError(
                f"`best` must be one of {sorted(logged)}. "
                f"Received: best={best!r}"
            )


def _take(metrics):
    values = metric_values(metrics)
    for metric in metrics:
        metric.reset_state()
    return values


def _prefixed(prefix, values):
    return {f"{prefix}/{name}": value for name, value in values.items()}


def _epoch_line(row, epochs):
    values = "  ".join(
        f"{key} {value:.4f}" for key, value in row.items() if "/" in key
    )
    return f"epoch {row['epoch']}/{epochs}  {values}"
