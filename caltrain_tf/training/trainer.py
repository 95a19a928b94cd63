"""The training loop: `Trainer.fit`, which reads from top to bottom."""

import contextlib
import dataclasses
import math
import os
import time

import keras
import numpy as np
import tensorflow as tf

from caltrain_tf import checks
from caltrain_tf.training import checkpoints as checkpointing
from caltrain_tf.training import logs
from caltrain_tf.training.run_folder import RunFolder
from caltrain_tf.training.step import Step, layers_of
from caltrain_tf.training.strategy import (
    TrainingInput,
    evaluation_input,
    is_chief,
    is_multi_worker,
)

# Signals are noticed between executions, so these must be short.
_SECONDS_PER_EXECUTION = 2.0
# Devices go on with further batches while the host waits for predictions.
_BATCHES_AHEAD = 4
_LOSSES = ("loss", "primary_loss", "secondary_loss", "l2_loss")


class NonFiniteLossError(ArithmeticError):
    """The loss is NaN or infinite, at the step that the message names."""


class Trainer:
    """Trains a classifier on any `tf.distribute` strategy.

    R replicas with batches of B/R reach the same weights as one replica with a
    batch of B, if a calibration loss has `cross_replica=True` and
    BatchNormalization has `synchronized=True`; otherwise each replica
    normalises with the statistics of its own part, as is usual on TPUs. The
    moving statistics are averaged over replicas.

    Args:
        model: A built model that returns logits, or what the loss expects.
        loss: A `keras.losses.Loss`, such as `CompositeLoss`.
        optimizer: A Keras optimizer, made like the model inside
            `with strategy.scope():`. With `gradient_accumulation_steps=4`, on
            one replica, a calibration loss sees the batch of one of four steps.
            `mixed_float16` needs a `keras.optimizers.LossScaleOptimizer`.
        strategy: From `get_strategy`; the current strategy if None.
        metrics: Keras metrics, which are copied and logged by their names.
        l2: Factor of the sum of squares that is added to the loss.
        l2_on: Names of the variables whose squares are summed. None means all
            trainable variables, as in Uncertainty Baselines on CIFAR; its
            ImageNet baseline uses `("kernel", "bias")`.
        jit_compile: Whether to compile the step with XLA; on several GPUs or
            machines, its part without communication.
        steps_per_execution: The largest number of steps in one `tf.function`
            call, which takes at most about two seconds: signals and a loss that
            is not finite are noticed after each call.
        clip_norm: The largest global norm of the global gradient, or None.

    Example:
        >>> import caltrain_tf as ct, keras, tensorflow as tf
        >>> x, y = tf.random.normal([64, 4]), tf.range(64) % 2
        >>> data = tf.data.Dataset.from_tensor_slices((x, y)).batch(16)
        >>> model = keras.Sequential([keras.Input([4]), keras.layers.Dense(2)])
        >>> loss = ct.CompositeLoss("nll", "sb_ece", from_logits=True)
        >>> accuracy = keras.metrics.SparseCategoricalAccuracy("accuracy")
        >>> trainer = ct.training.Trainer(
        ...     model, loss, keras.optimizers.SGD(0.1), metrics=[accuracy]
        ... )
        >>> history = trainer.fit(data, epochs=2, verbose=False)
        >>> sorted(history[-1])
        ['epoch', 'step', 'train/accuracy', 'train/learning_rate',
         'train/loss', 'train/primary_loss', 'train/secondary_loss']
        >>> trainer.predict(data).shape
        (64, 2)
    """

    def __init__(
        self,
        model,
        loss,
        optimizer,
        strategy=None,
        metrics=(),
        l2=0.0,
        l2_on=None,
        jit_compile=True,
        steps_per_execution=10,
        clip_norm=None,
    ):
        if keras.backend.backend() != "tensorflow":
            raise RuntimeError(
                "`Trainer` needs Keras' TensorFlow backend. Use `model.fit`, "
                "or set KERAS_BACKEND=tensorflow before Keras is imported. "
                f"Received: backend={keras.backend.backend()!r}"
            )
        self.strategy = strategy or tf.distribute.get_strategy()
        _check_model(self.strategy, model, l2_on, optimizer, clip_norm)
        names = [getattr(metric, "name", metric) for metric in metrics]
        _require(
            all(isinstance(metric, keras.metrics.Metric) for metric in metrics)
            and len({*names, *_LOSSES}) == len(names) + len(_LOSSES),
            "`metrics` must hold `keras.metrics.Metric`s with names of their "
            f"own, and none of {', '.join(_LOSSES)}. Received: {names}",
        )
        if clip_norm is not None:
            checks.number("clip_norm", clip_norm, low=0)
        self.model, self.optimizer = model, optimizer
        self.l2 = checks.number("l2", l2, low=0, closed=True)
        self.steps_per_execution = checks.count(
            "steps_per_execution", steps_per_execution
        )
        self._stop = None  # Signals, while `fit` runs.
        with self.strategy.scope():
            if not optimizer.built:
                optimizer.build(model.trainable_variables)
            self.train_metrics, self.eval_metrics = copies = [
                [type(each).from_config(each.get_config()) for each in metrics]
                for _ in range(2)
            ]
            options = self.l2, l2_on, clip_norm, jit_compile
            self._step = Step(model, loss, optimizer, *options, *copies)
        self._train = _Phase("train", self._step, self.strategy)

    def fit(
        self,
        dataset,
        epochs,
        *,
        dataset_steps=None,
        held_out=None,
        held_out_steps=None,
        calibration_loss=None,
        evaluations=None,
        evaluate_every=1,
        measures=None,
        best=None,
        run=None,
        config=None,
        keep=3,
        checkpoint_every_steps=None,
        checkpoint_every_seconds=600,
        verbose=True,
    ):
        """Trains, or resumes from the newest checkpoint of the run's folder.

        With `held_out`, training is interleaved (appendix B of the paper): each
        epoch first minimises the loss on `dataset`, then `calibration_loss` on
        `held_out`. Both phases count as steps of the learning rate schedule.

        A resumed run reaches the same weights as one that was never killed,
        provided that the data of an epoch depend only on the epoch: pass a
        callable, or a dataset that does not reshuffle.

        Args:
            dataset: Batches `(x, y)` or `(x, y, weight)`: a dataset of global
                batches in the order of their use, or a callable of the epoch,
                counted from 0, that returns one. A callable of
                `(epoch, context)` instead builds a host's part on that host,
                given its `tf.distribute.InputContext`: batches of
                `context.get_per_replica_batch_size(...)`, one after the other
                for the host's replicas. If it has a parameter `first_step`, it
                starts at this step; otherwise earlier batches are skipped.
            epochs: The total number of epochs of the run.
            dataset_steps: Batches per epoch, if the dataset does not know.
            held_out: The held-out part for interleaved training, likewise.
            held_out_steps: Its batches per epoch, likewise.
            calibration_loss: The loss on the held-out part, such as
                `CompositeLoss(None, "sb_ece", beta=1, from_logits=True)`; on
                several replicas with `cross_replica=True`.
            evaluations: Arguments of `evaluate` by name, such as
                `{"test": ...}`, which prefixes the metrics: `test/accuracy`.
            evaluate_every: Number of epochs between evaluations; the last epoch
                is always evaluated.
            measures: Functions from all `(outputs, labels)` of an evaluation,
                by its name, to floats by name, which are logged likewise.
            best: The logged value, such as `calibration/loss`, whose minimum
                selects the checkpoint that is kept for `restore_best`.
            run: The path of the run's folder, or an open
                `run_folder.RunFolder`. Without it, nothing is written.
            config: If `run` is a path, the configuration of the run, which is
                saved, or compared with the saved one.
            keep: How many of the newest checkpoints to keep.
            checkpoint_every_steps: Number of steps between checkpoints, beside
                the one at the end of every epoch, before its evaluation.
            checkpoint_every_seconds: Seconds between them, or None.
            verbose: Whether to show progress.

        Returns:
            The rows of the log, including those before a restart.

        Raises:
            NonFiniteLossError: If the loss is not finite.
            Preempted: After SIGTERM or Google's notice of preemption, with exit
                code 143, once a checkpoint is written.
            KeyboardInterrupt: After Ctrl-C, likewise, or a second Ctrl-C.
            OSError: If checkpoints exist but cannot be read at the moment.
        """
        _check_trainable(self.model, self.optimizer)
        # The phases of an epoch.
        phases = [self._train]
        self._train.input = TrainingInput(
            self.strategy, "dataset", dataset, dataset_steps
        )
        steps_per_epoch = self._train.input.steps
        if held_out is not None or calibration_loss is not None:
            with self.strategy.scope():
                step = dataclasses.replace(
                    self._step, loss=calibration_loss, train_metrics=[]
                )
            second = _Phase("held_out", step, self.strategy, steps_per_epoch)
            second.input = TrainingInput(
                self.strategy, "held_out", held_out, held_out_steps
            )
            phases.append(second)
            steps_per_epoch += second.input.steps
        evaluations, measures = evaluations or {}, measures or {}
        for name in measures:
            checks.choice("measures", name, evaluations)
        every_steps = checkpoint_every_steps or math.inf
        every_seconds = checkpoint_every_seconds or math.inf

        with contextlib.ExitStack() as stack:
            # The files of the run, and its progress so far.
            chief = is_chief(self.strategy)
            if run is not None and not isinstance(run, RunFolder):
                run = stack.enter_context(RunFolder(run, config, chief))
            log = logs.MetricsLog(run and run.file("metrics.jsonl"), chief)
            if run is not None and chief:
                writer = tf.summary.create_file_writer(run.file("summaries"))
                stack.callback(writer.close)
                stack.enter_context(writer.as_default())
            checkpoints = self._open_checkpoints(run, keep, chief)
            stack.callback(checkpoints.close)
            position = checkpoints.position
            log.rewind(position.step)
            first_epoch, done = divmod(position.step, steps_per_epoch)
            if done == 0:
                # The epoch is over if its row is in the log, where all workers
                # see it. Otherwise its evaluation is left to do.
                steps = [0, *(row["step"] for row in log.rows)]
                if self._agree(position.step in steps)[0] == 1:
                    position.sums = {}
                    _reset(self.train_metrics)
                else:
                    first_epoch -= 1
                    log.rewind(first_epoch * steps_per_epoch)
            self._stop = stack.enter_context(
                checkpointing.StopSignal(saves=run is not None)
            )
            stack.callback(setattr, self, "_stop", None)
            total, shown = steps_per_epoch * epochs, verbose and chief
            bar = logs.progress_bar(total, position.step, shown)
            stack.callback(bar.close)

            for epoch in range(first_epoch, epochs):
                end = (epoch + 1) * steps_per_epoch
                bar.set_description(f"epoch {epoch + 1}/{epochs}")
                # The remaining steps of the epoch.
                for phase in phases:
                    first = epoch * steps_per_epoch + phase.first_step
                    done = max(position.step - first, 0)
                    if done >= phase.input.steps:
                        continue
                    batches = iter(phase.input.batches(epoch, done))
                    while done < phase.input.steps:
                        count = min(
                            phase.steps_at_once,
                            self.steps_per_execution,
                            phase.input.steps - done,
                            every_steps - position.step % every_steps,
                        )
                        start = time.monotonic()
                        terms = self._run_steps(
                            phase, batches, count, position.step
                        )
                        seconds = (time.monotonic() - start) / count
                        done += count
                        position.advance(phase.name, count, terms)
                        means = {name: np.mean(terms[name]) for name in terms}
                        bar.set_postfix(means, refresh=False)
                        bar.update(count)
                        scalars = _prefixed(f"batch/{phase.name}", means)
                        logs.write_scalars(scalars, position.step)

                        # Workers differ in their clocks and signals, but they
                        # have to do the same.
                        stops = self._stop.received is not None
                        seconds, age, stops = self._agree(
                            seconds, checkpoints.age(), stops
                        )
                        phase.set_pace(seconds)
                        if (
                            position.step == end
                            or position.step % every_steps == 0
                            or age >= every_seconds
                            or stops
                        ):
                            checkpoints.save()
                        if stops:
                            checkpoints.wait()
                            self._stop.stop()

                # The end of the epoch: its evaluation and one row of the log.
                row = {"epoch": epoch + 1, "step": end}
                for phase in phases:
                    for name, value in position.sums[phase.name].items():
                        row[f"{phase.name}/{name}"] = value / phase.input.steps
                row |= _prefixed("train", _results(self.train_metrics))
                rate = tf.convert_to_tensor(self.optimizer.learning_rate)
                row["train/learning_rate"] = float(rate)
                if row["epoch"] % evaluate_every == 0 or row["epoch"] == epochs:
                    for name, data in evaluations.items():
                        row |= _prefixed(name, self.evaluate(data))
                        if name in measures:
                            values = self._measure(data, measures[name])
                            row |= _prefixed(name, values)
                    if best is not None:
                        checks.choice("best", best, row)
                scalars = {key: row[key] for key in row if "/" in key}
                logs.write_scalars(scalars, row["step"])
                tf.summary.flush()
                logs.show_epoch(bar, row, epochs)
                if best in row and row[best] < log.lowest(best):
                    checkpoints.save(best=True)
                    checkpoints.wait()
                log.append(row)
                position.sums = {}
                _reset(self.train_metrics)

            # The last checkpoint exists when `fit` returns.
            checkpoints.wait()
            self._stop_if_asked()
        return log.rows

    def evaluate(self, dataset):
        """Returns the loss, without l2, and the metrics as floats by name.

        Args:
            dataset: Batches `(x, y)` or `(x, y, weight)`; the last one may be
                smaller. Or a callable of a `tf.distribute.InputContext` that
                builds one host's part on that host, in batches of a replica.
        """
        _reset(self.eval_metrics)
        rows = self._run_batches(self._evaluate_batch, dataset)
        *sums, weight = np.sum(rows, axis=0, dtype="float64").tolist()
        checks.number("sum of weights", weight, low=0)
        means = [value / weight for value in sums]
        named = dict(zip(self._step.eval_names, means, strict=True))
        return {**named, **_results(self.eval_metrics)}

    def predict(self, dataset, with_labels=False):
        """Returns the model's outputs in the order of the dataset.

        Args:
            dataset: Batches `x`, `(x, y)` or `(x, y, weight)`, or a callable as
                in `evaluate`. Examples of weight 0 are dropped.
            with_labels: Whether to return a pair `(outputs, labels)`.
        """
        parts = self._run_batches(self._predict_batch, dataset)
        parts = zip(*parts, strict=True)
        outputs, labels, weights = map(np.concatenate, parts)
        outputs, labels = outputs[weights != 0], labels[weights != 0]
        return (outputs, labels) if with_labels else outputs

    def restore_best(self, run):
        """Loads the best weights of a `run` (see `fit`); returns their step."""
        folder = os.path.join(run, "checkpoints")
        with self.strategy.scope():
            path = checkpointing.restore_model(folder, self.model, "best")
        step = int(path.rpartition("-")[2])
        self._check_shared(path, step)
        return step

    def _run_steps(self, phase, batches, count, first_step):
        """Takes steps and returns their loss terms, lists of floats by name."""
        terms = phase.function(batches, tf.constant(count)).numpy()
        for step, values in enumerate(terms, first_step):
            if not np.isfinite(values).all():
                parts = ", ".join(map("{}={}".format, phase.names, values))
                raise NonFiniteLossError(
                    f"The loss is not finite at step {step}: {parts}. "
                    "No checkpoint was written since."
                )
        return dict(zip(phase.names, terms.T.tolist(), strict=True))

    def _run_batches(self, function, dataset):
        """Returns the results of a function of every batch, as arrays."""
        results = []
        iterator = iter(evaluation_input(self.strategy, dataset))
        awaited = slice(-_BATCHES_AHEAD - 1, -_BATCHES_AHEAD)
        # Also where a host has fewer batches than the others.
        while (batch := iterator.get_next_as_optional()).has_value():
            results.append(function(batch.get_value()))
            results[awaited] = map(_as_arrays, results[awaited])
            self._stop_if_asked()
        return list(map(_as_arrays, results))

    @tf.function(autograph=False)
    def _evaluate_batch(self, batch):
        per_replica = self.strategy.run(self._step.evaluate, args=batch)
        return self.strategy.reduce("SUM", per_replica, axis=None)

    @tf.function(autograph=False)
    def _predict_batch(self, batch):
        """Returns outputs, labels and weights of all replicas and workers."""
        x, *others = batch
        parts = [self.strategy.run(self._step.predict, args=(x,)), *others]
        if is_multi_worker(self.strategy):
            return [self.strategy.gather(part, axis=0) for part in parts]
        local = self.strategy.experimental_local_results
        return [tf.concat(local(part), axis=0) for part in parts]

    def _agree(self, *values):
        """Returns the means of values over workers, the same on all of them."""
        if not is_multi_worker(self.strategy):
            return values
        return self._mean(tf.constant(values, tf.float64)).numpy()

    @tf.function(autograph=False)
    def _mean(self, values):
        per_replica = self.strategy.run(tf.identity, args=(values,))
        return self.strategy.reduce("MEAN", per_replica, axis=None)

    def _stop_if_asked(self):
        """Ends `fit` after a signal to any worker."""
        if self._stop and any(self._agree(self._stop.received is not None)):
            self._stop.stop()

    def _open_checkpoints(self, run, keep, chief):
        """Returns the checkpoints of a run, the newest of them restored."""
        weights = {id(variable) for variable in self.model.weights}
        variables = {
            "model": self.model.weights,
            "optimizer": self.optimizer.variables,
            # The seeds of dropout layers.
            "state": [v for v in self.model.variables if id(v) not in weights],
            "metrics": [v for m in self.train_metrics for v in m.variables],
        }
        folder = run and run.file("checkpoints")
        opened = checkpointing.Checkpoints(folder, variables, keep, chief)
        with self.strategy.scope():
            path = opened.restore()
        self._check_shared(path, opened.position.step)
        return opened

    def _check_shared(self, path, step):
        """Raises if workers have read different checkpoints."""
        _require(
            self._agree(step)[0] == step,
            "All workers must share the file system of the run's folder, but "
            f"they see different checkpoints. Received: {path} on this one",
        )

    def _measure(self, dataset, measure):
        values = measure(*self.predict(dataset, with_labels=True))
        # Rounding differs between machines, but all must agree on the best.
        means = map(float, self._agree(*values.values()))
        return dict(zip(values, means, strict=True))


class _Phase:
    """A part of an epoch, named in the logs: its loss, batches and pace."""

    def __init__(self, name, step, strategy, first_step=0):
        self.name, self.names = name, step.names
        self.first_step, self.input = first_step, None
        self.steps_at_once = 1
        # As in Keras, AutoGraph converts only the loop over steps. Converting
        # losses and metrics would take seconds before the first step.
        train = tf.autograph.experimental.do_not_convert(step.train)

        def train_steps(iterator, num_steps):
            terms = tf.TensorArray(tf.float32, num_steps)
            for index in tf.range(num_steps):
                per_replica = strategy.run(train, args=next(iterator))
                total = strategy.reduce("SUM", per_replica, axis=None)
                terms = terms.write(index, total)
            return terms.stack()

        self.function = tf.function(train_steps)

    def set_pace(self, seconds_per_step):
        """Has an execution take at most a few seconds."""
        fit = int(_SECONDS_PER_EXECUTION / max(seconds_per_step, 1e-9))
        # Twice as many at most, because batches that were read ahead are fast.
        self.steps_at_once = max(1, min(2 * self.steps_at_once, fit))


def _as_arrays(tensors):
    return tf.nest.map_structure(np.asarray, tensors)


def _prefixed(prefix, values):
    return {f"{prefix}/{name}": value for name, value in values.items()}


def _results(metrics):
    return {metric.name: float(metric.result()) for metric in metrics}


def _reset(metrics):
    for metric in metrics:
        metric.reset_state()


def _require(condition, message):
    if not condition:
        raise ValueError(message)


def _check_model(strategy, model, l2_on, optimizer, clip_norm):
    """Raises if something else than the arguments say would be trained."""
    _require(
        model.built,
        f"`model` must be built. Received: {model.name}, which is not built",
    )
    for variable in [*model.variables, *optimizer.variables]:
        _require(
            strategy.extended.variable_created_in_scope(variable.value),
            "`model` and `optimizer` must be made inside `with "
            f"strategy.scope():`. Received: {variable.path}, which was not",
        )
    for name in l2_on or ():
        names = sorted({each.name for each in model.trainable_variables})
        checks.choice("l2_on", name, names)
    scales = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    inner = optimizer.inner_optimizer if scales else optimizer
    replicas = strategy.num_replicas_in_sync
    _require(
        not inner.gradient_accumulation_steps
        or not (clip_norm or replicas > 1),
        "`gradient_accumulation_steps` does not go with `clip_norm` or several "
        f"replicas. Received: clip_norm={clip_norm}, replicas={replicas}",
    )
    _require(
        replicas == 1 or not (inner.clipnorm or inner.global_clipnorm),
        "An optimizer's `clipnorm` and `global_clipnorm` clip the gradient of "
        "each replica alone. Pass `clip_norm` to the `Trainer`. "
        f"Received: optimizer={inner.name} on {replicas} replicas",
    )


def _check_trainable(model, optimizer):
    """Raises if the model can be evaluated, but not trained."""
    _require(
        model.trainable_variables,
        f"`model` must have trainable variables. Received: {model.name}",
    )
    policies = {layer.dtype_policy.name for layer in layers_of(model)}
    _require(
        isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        or "mixed_float16" not in policies,
        "`mixed_float16` needs `keras.optimizers.LossScaleOptimizer`, or small "
        f"gradients become 0. Received: optimizer={optimizer.name}",
    )
