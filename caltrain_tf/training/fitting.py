"""The epochs of a run: phases, evaluations, checkpoints."""

import contextlib
import math

import tensorflow as tf

from caltrain_tf.training.execution import metric_values
from caltrain_tf.training.preemption import StopSignal
from caltrain_tf.training.progress import Progress
from caltrain_tf.training.records import Records
from caltrain_tf.training.run_folder import RunFolder
from caltrain_tf.training.strategy import is_chief

DEFAULT_BEST = "calibration/negative_log_likelihood"


class Fitting:
    """One call of `Trainer.fit`, whose arguments these are."""

    def __init__(
        self,
        trainer,
        phases,
        epochs,
        evaluations,
        evaluate_every,
        best,
        checkpoint_every_steps,
        on_epoch_end,
    ):
        """Checks that the best checkpoint can be told."""
        self.trainer = trainer
        self.phases = phases
        self.epochs = epochs
        self.evaluations = evaluations
        self.evaluate_every = evaluate_every
        self.best = best or DEFAULT_BEST
        self.checkpoint_every_steps = checkpoint_every_steps
        self.on_epoch_end = on_epoch_end
        self.steps_per_epoch = sum(phase.steps for phase in phases)
        names = {metric.name for metric in trainer.eval_metrics} | {"loss"}
        logged = {f"{split}/{name}" for split in evaluations for name in names}
        if best is not None and best not in logged:
            raise ValueError(
                f"`best` must be one of {sorted(logged)}. "
                f"Received: best={best!r}"
            )

    def run(self, run, config, keep, verbose):
        """Trains to the end; returns the log's rows."""
        chief = is_chief(self.trainer.strategy)
        with contextlib.ExitStack() as stack:
            if run is not None and not isinstance(run, RunFolder):
                run = stack.enter_context(RunFolder(run, config, chief))
            self.records = Records(self.trainer, run, keep)
            stack.callback(self.records.close)
            self.records.resume()
            self.position = self.records.position
            self.progress = None
            if verbose and chief:
                self.progress = Progress(
                    self.steps_per_epoch * self.epochs,
                    self.position.step,
                    self.phases[0].batch_size,
                )
            self.stop = stack.enter_context(
                StopSignal(self.trainer.strategy, saves=run is not None)
            )
            while self.position.epoch < self.epochs:
                self._run_epoch()
                self._end_epoch()
                if self.stop.requested():
                    self.stop.stop()
        return self.records.log.rows

    def _run_epoch(self):
        first = 0
        for phase in self.phases:
            done = self.position.step_in_epoch - first
            if done < phase.steps:
                self._run_phase(phase, done)
            first += phase.steps

    def _run_phase(self, phase, done):
        iterator = phase.iterator(self.position.epoch, done)
        while done < phase.steps:
            count = self._steps_ahead(phase.steps - done)
            terms = phase.execution.train(iterator, count, self.position.step)
            done += count
            self.position.step += count
            self.position.step_in_epoch += count
            self.position.add(phase.name, terms)
            means = {name: value / count for name, value in terms.items()}
            self._show(phase, means)
            self._save_inside_epoch()

    def _steps_ahead(self, remaining):
        count = min(self.trainer.steps_per_execution, remaining)
        every = self.checkpoint_every_steps or math.inf
        return min(count, every - self.position.step % every)

    def _show(self, phase, means):
        step = self.position.step
        scalars = {f"batch/{phase.name}/{key}": means[key] for key in means}
        if self.progress is not None:
            epoch = self.position.epoch + 1
            self.progress.update(step, epoch, self.epochs, means)
            scalars["batch/rate"] = self.progress.rate(step)
        self.records.summaries.scalars(scalars, step)

    def _save_inside_epoch(self):
        # At its end the epoch is finished first, which saves too.
        if self.position.step_in_epoch == self.steps_per_epoch:
            return
        stop = self.stop.requested()
        every = self.checkpoint_every_steps
        if stop or (every and self.position.step % every == 0):
            self.records.save()
        if stop:
            self.stop.stop()

    def _end_epoch(self):
        row = {"epoch": self.position.epoch + 1, "step": self.position.step}
        for phase in self.phases:
            for name, value in self.position.sums[phase.name].items():
                row[f"{phase.name}/{name}"] = value / phase.steps
        metrics = self.trainer.train_metrics
        row.update(_prefixed("train", metric_values(metrics)))
        for metric in metrics:
            metric.reset_state()
        rate = tf.convert_to_tensor(self.trainer.optimizer.learning_rate)
        row["train/learning_rate"] = float(rate)
        self.position.end_epoch()
        last = self.position.epoch == self.epochs
        if last or self.position.epoch % self.evaluate_every == 0:
            for name, dataset in self.evaluations.items():
                row.update(_prefixed(name, self.trainer.evaluate(dataset)))
        self._record(row)

    def _record(self, row):
        self.records.add(row)
        if self.on_epoch_end is not None:
            self.on_epoch_end(row, self.records.summaries)
        self.records.summaries.flush()
        if self.progress is not None:
            self.progress.note(_epoch_line(row, self.epochs))
        if self.best in row:
            self.records.mark_best(row[self.best])
        self.records.save()


def _prefixed(prefix, values):
    return {f"{prefix}/{name}": value for name, value in values.items()}


def _epoch_line(row, epochs):
    """The row for a terminal: without the parts of the loss and the rate."""
    groups = {}
    for key, value in row.items():
        group, _, name = key.partition("/")
        if name and not name.endswith(("_loss", "_rate")):
            groups.setdefault(group, []).append(f"{name} {value:.4f}")
    lines = [f"  {group}: {', '.join(groups[group])}" for group in groups]
    return "\n".join([f"epoch {row['epoch']}/{epochs}", *lines])
