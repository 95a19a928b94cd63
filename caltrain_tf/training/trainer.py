"""The training loop: `Trainer.fit`, which reads from top to bottom.

`step.py` contains a single step, `strategy.py` the replicas and their batches,
`checkpoints.py` saving and resuming, and `logs.py` the logs and the progress
bar.
"""

import contextlib
import dataclasses
import math
import os
import time
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

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
# A preempted run writes no other checkpoint if one this young is on its way.
_YOUNG_SECONDS = 60.0


class NonFiniteLossError(ArithmeticError):
    """The loss is NaN or infinite; the message has the step and the parts."""


class Trainer:
    """Trains a classifier on any `tf.distribute` strategy.

    R replicas with batches of B/R reach the same weights as one replica with a
    batch of B: the loss, l2, the regularisation losses of the model and the
    clipped norm are those of the global batch. For this, a calibration loss
    needs `cross_replica=True`, and BatchNormalization needs
    `synchronized=True`; otherwise each replica normalises with the statistics
    of its own part, as is usual on TPUs. The moving statistics are averaged
    over replicas.

    On one device and on TPUs, XLA compiles the whole step. On several GPUs or
    machines, it compiles the part without communication: see `compiled_part`.

    Args:
        model: A built model that returns logits, or what the loss expects.
        loss: A `keras.losses.Loss`, such as `CompositeLoss`.
        optimizer: A Keras optimizer. Create the model and the optimizer inside
            `with strategy.scope():`. With `gradient_accumulation_steps=4`, four
            steps make one update, and a calibration loss sees the batch of a
            step. `mixed_float16` needs a `keras.optimizers.LossScaleOptimizer`.
        strategy: From `get_strategy`; the current strategy if None.
        metrics: Keras metrics `(y_true, y_pred, sample_weight)`. The trainer
            uses copies of them. Their names are used in the logs, such as
            `negative_log_likelihood` and `ece`.
        l2: Factor of the sum of squares that is added to the loss, in all
            phases of training.
        l2_on: Names of the variables whose squares are summed. None means all
            trainable variables, including the scale and offset of
            BatchNormalization, as in Uncertainty Baselines on CIFAR; on
            ImageNet it uses `("kernel", "bias")`.
        jit_compile: Whether to compile with XLA.
        steps_per_execution: The largest number of steps, or of batches of an
            evaluation, in one `tf.function` call. Fewer are taken if they would
            take more than about two seconds, because signals and a loss that is
            not finite are noticed after each call.
        clip_norm: The largest global norm of the global gradient, or None.

    Example:
        >>> import caltrain_tf as ct, keras, tensorflow as tf
        >>> keras.utils.set_random_seed(0)
        >>> x, y = tf.random.normal([64, 4]), tf.range(64) % 2
        >>> data = tf.data.Dataset.from_tensor_slices((x, y)).batch(16)
        >>> model = keras.Sequential([keras.Input([4]), keras.layers.Dense(2)])
        >>> loss = ct.CompositeLoss("nll", "sb_ece", from_logits=True)
        >>> trainer = ct.training.Trainer(
        ...     model,
        ...     loss,
        ...     keras.optimizers.SGD(0.1),
        ...     metrics=[keras.metrics.SparseCategoricalAccuracy("accuracy")],
        ... )
        >>> history = trainer.fit(data, epochs=2, verbose=False)
        >>> sorted(history[-1])
        ['epoch', 'step', 'train/accuracy', 'train/learning_rate',
         'train/loss', 'train/primary_loss', 'train/secondary_loss']
        >>> sorted(trainer.evaluate(data))
        ['accuracy', 'loss', 'primary_loss', 'secondary_loss']
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
        _check_arguments(
            loss, metrics, l2, l2_on, steps_per_execution, clip_norm
        )
        self.strategy = strategy or tf.distribute.get_strategy()
        _check_made_in_scope(self.strategy, model, optimizer, clip_norm)
        _check_l2_names(model, l2_on)
        self.model = model
        self.optimizer = optimizer
        self.l2 = l2
        self.l2_on = None if l2_on is None else tuple(l2_on)
        self.jit_compile = jit_compile
        self.steps_per_execution = steps_per_execution
        self.clip_norm = clip_norm
        with self.strategy.scope():
            if not optimizer.built:
                optimizer.build(model.trainable_variables)
            self.train_metrics = [_copy(metric) for metric in metrics]
            self.eval_metrics = [_copy(metric) for metric in metrics]
        self._stop = None  # Signals, while `fit` runs.
        self._pace = _Pace(steps_per_execution)
        self._step = self._make_step(loss, self.train_metrics)
        self._train_function = self._make_train_function(self._step)
        self._evaluate_function = self._make_batches_function(
            self._evaluate_batch, lambda label_dtype: (tf.float32,)
        )
        self._predict_function = self._make_batches_function(
            self._predict_batch,
            lambda label_dtype: (tf.float32, label_dtype, tf.float32),
        )
        self._worker_means = tf.function(self._worker_means, autograph=False)

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
        profile_steps=None,
        on_epoch_end=None,
        verbose=True,
    ):
        """Trains, or resumes from the newest checkpoint of the run's folder.

        With `held_out`, training is interleaved (appendix B of the paper): each
        epoch first minimises the loss on `dataset`, then `calibration_loss` on
        `held_out`. Both phases count as steps of the learning rate schedule.

        A run that was killed and resumed reaches the same weights as one that
        was not, provided that the data of an epoch depend only on the epoch:
        pass a callable, or a dataset that does not reshuffle.

        Args:
            dataset: Batches `(x, y)` or `(x, y, weight)`, in one of three ways.
                A dataset of global batches, in the order in which they are to
                be used. A callable of one argument, the epoch counted from 0,
                that returns such a dataset. Or a callable of two arguments,
                `(epoch, context)`, that builds each host's part on that host:
                see below.
            epochs: The total number of epochs of the run.
            dataset_steps: Number of batches of an epoch, if the dataset does
                not know it.
            held_out: The held-out part for interleaved training, in one of the
                same three ways.
            held_out_steps: Number of its batches, if it does not know it.
            calibration_loss: The loss on the held-out part. On several
                replicas, `CompositeLoss("sb_ece", cross_replica=True)`.
            evaluations: Arguments of `evaluate` by name, such as
                `{"calibration": ..., "test": ...}`. Their metrics are logged
                with the name as a prefix, such as `test/accuracy`.
            evaluate_every: Number of epochs between evaluations; the last epoch
                is always evaluated.
            measures: Functions `(outputs, labels)` by the name of an
                evaluation, for measures that need all predictions at once. They
                get the results of `predict`, on every worker, and return floats
                by name, which are logged with the evaluation's metrics.
            best: The logged value, such as `calibration/loss`, whose minimum
                selects the checkpoint for `restore_best`. Without it, no best
                checkpoint is kept.
            run: An open `RunFolder`, or a path. Without it, nothing is written.
            config: If `run` is a path, the configuration of the run, which is
                saved, or compared with the saved one.
            keep: How many of the newest checkpoints to keep.
            checkpoint_every_steps: Number of steps between checkpoints within
                an epoch. There is one after the steps of every epoch, before
                its evaluation.
            checkpoint_every_seconds: Seconds between checkpoints, likewise;
                None for no limit.
            profile_steps: `(first, last)`: TensorFlow's profiler records the
                steps from `first` up to but not including `last`, counted from
                0 over the whole run, for TensorBoard. It needs a `run`.
            on_epoch_end: Called with the epoch's row and the `Summaries`,
                before the row is written.
            verbose: Whether to show progress.

        Returns:
            The rows of the log, including those before a restart.

        Raises:
            NonFiniteLossError: If the loss is not finite; the message has the
                step and the parts of the loss.
            Preempted: After SIGTERM and a checkpoint; it ends the process with
                code 143. A second SIGTERM ends the process at once.
            KeyboardInterrupt: After Ctrl-C; with `run`, once the step is done
                and a checkpoint is written, or at once after a second Ctrl-C.
            OSError: If checkpoints exist but cannot be read at the moment.

        A callable of `(epoch, context)` is called inside
        `strategy.distribute_datasets_from_function`, with its `InputContext`,
        so each host reads only its part, and remote hosts (`tpu="name"`) work.
        It returns batches of `context.get_per_replica_batch_size(...)`, one
        after the other for the host's replicas. If it has a parameter
        `first_step`, it must start at this step of the epoch; otherwise the
        batches before it are computed and skipped.
        """
        # The phases of an epoch.
        _check_interleaved(held_out, calibration_loss)
        evaluations, measures = evaluations or {}, measures or {}
        self._check_best(best, evaluations, measures)
        _check_profile_steps(profile_steps, run)
        train = TrainingInput(self.strategy, "dataset", dataset, dataset_steps)
        phases = [
            _Phase("train", train, self._step, self._train_function, self._pace)
        ]
        if held_out is not None:
            rest = TrainingInput(
                self.strategy, "held_out", held_out, held_out_steps
            )
            step = self._make_step(calibration_loss, ())
            function = self._make_train_function(step)
            pace = _Pace(self.steps_per_execution)
            phases.append(
                _Phase("held_out", rest, step, function, pace, train.steps)
            )
        steps_per_epoch = sum(phase.input.steps for phase in phases)
        every_steps = checkpoint_every_steps or math.inf
        every_seconds = checkpoint_every_seconds or math.inf

        with contextlib.ExitStack() as stack:
            # The files of the run, and its progress so far.
            chief = is_chief(self.strategy)
            if run is not None and not isinstance(run, RunFolder):
                run = stack.enter_context(RunFolder(run, config, chief))
            log = logs.MetricsLog(run and run.file("metrics.jsonl"), chief)
            events = run.file("summaries") if run is not None else None
            summaries = logs.Summaries(events if chief else None)
            stack.callback(summaries.close)
            if run is not None:
                summaries.hyperparameters(run.config)
            checkpoints = self._open_checkpoints(run, keep, chief)
            stack.callback(checkpoints.close)
            position = checkpoints.position
            if self._restore(checkpoints) is None:
                _reset(self.train_metrics)
            log.rewind(position.step)
            if position.step_in_epoch == steps_per_epoch:
                # The epoch is over if its row is in the log, where all workers
                # see it. Otherwise its evaluation is left to do.
                rows = [row["step"] for row in log.rows]
                if self._agree(position.step in rows)[0] == 1:
                    position.end_epoch()
                    _reset(self.train_metrics)
                else:
                    log.rewind(position.step - steps_per_epoch)
            profiler = stack.enter_context(
                _Profiler(profile_steps, events, chief)
            )
            self._stop = stack.enter_context(
                checkpointing.StopSignal(saves=run is not None)
            )
            stack.callback(setattr, self, "_stop", None)
            bar = stack.enter_context(
                logs.progress_bar(
                    steps_per_epoch * epochs,
                    position.step,
                    shown=verbose and chief,
                )
            )

            while position.epoch < epochs:
                bar.set_description(f"epoch {position.epoch + 1}/{epochs}")
                # The remaining steps of the epoch.
                for phase in phases:
                    done = max(position.step_in_epoch - phase.first_step, 0)
                    if done >= phase.input.steps:
                        continue
                    batches = iter(phase.input.batches(position.epoch, done))
                    while done < phase.input.steps:
                        count = min(
                            phase.pace.steps,
                            phase.input.steps - done,
                            every_steps - position.step % every_steps,
                            profiler.turn(position.step),
                        )
                        start = time.monotonic()
                        terms = self._run_steps(
                            phase, batches, count, position.step
                        )
                        seconds = (time.monotonic() - start) / count
                        done += count
                        position.advance(phase.name, count, terms)
                        _show(
                            summaries, bar, phase.name, count, terms, position
                        )

                        # Workers differ in their clocks and signals, but they
                        # have to do the same.
                        seconds, age, is_writing, stops = self._agree(
                            seconds,
                            checkpoints.age(),
                            checkpoints.is_writing,
                            self._stop.received is not None,
                        )
                        phase.pace.update(seconds)
                        is_due = (
                            position.step_in_epoch == steps_per_epoch
                            or position.step % every_steps == 0
                            or age >= every_seconds
                        )
                        if stops:
                            is_due = not is_writing or age >= _YOUNG_SECONDS
                        if is_due:
                            checkpoints.save()
                        if stops:
                            checkpoints.wait()
                            self._stop.stop()

                # The end of the epoch: its evaluation and one row of the log.
                row = self._train_row(phases, position)
                if row["epoch"] % evaluate_every == 0 or row["epoch"] == epochs:
                    for name, data in evaluations.items():
                        row.update(_prefixed(name, self.evaluate(data)))
                        if name in measures:
                            values = self._measure(data, measures[name])
                            row.update(_prefixed(name, values))
                    _check_logged(best, row)
                summaries.scalars(
                    {key: row[key] for key in row if "/" in key}, row["step"]
                )
                if on_epoch_end is not None:
                    on_epoch_end(row, summaries)
                summaries.flush()
                logs.write_below(bar, logs.epoch_text(row, epochs))
                if best in row and row[best] < _lowest(log.rows, best):
                    checkpoints.save_best()
                    checkpoints.wait()
                log.append(row)
                position.end_epoch()
                _reset(self.train_metrics)

            # The last checkpoint exists when `fit` returns.
            checkpoints.wait()
            self._stop_if_asked()
        return log.rows

    def evaluate(self, dataset):
        """Returns the loss and the metrics of a dataset.

        Args:
            dataset: Batches `(x, y)` or `(x, y, weight)`; the last one may be
                smaller. Examples of weight 0 are ignored. Or a callable of a
                `tf.distribute.InputContext` that builds one host's part of such
                a dataset on that host, in batches for each replica.

        Returns:
            Floats by name. The loss is the mean over batches, weighted by their
            examples, without l2.
        """
        _reset(self.eval_metrics)
        rows = self._executions(self._evaluate_function, dataset)
        rows = np.concatenate([terms for (terms,) in rows])
        *sums, weight = rows.astype("float64").sum(axis=0).tolist()
        if not weight > 0:
            raise ValueError(
                "The weights of an evaluation must not all be 0. "
                f"Received: sum of weights={weight}"
            )
        means = [value / weight for value in sums]
        named = dict(zip(self._step.eval_names, means, strict=True))
        return {**named, **_results(self.eval_metrics)}

    def predict(self, dataset, with_labels=False):
        """Returns the model's outputs in the order of the dataset.

        Args:
            dataset: Batches `x`, `(x, y)` or `(x, y, weight)`, or a callable as
                in `evaluate`. Examples of weight 0 are padding and are dropped.
            with_labels: Whether to also return the labels of the same rows.

        Returns:
            An array `(examples, classes)`, or a pair `(outputs, labels)`.
        """
        outputs, labels, weights = map(
            np.concatenate,
            zip(
                *self._executions(self._predict_function, dataset), strict=True
            ),
        )
        outputs, labels = outputs[weights != 0], labels[weights != 0]
        return (outputs, labels) if with_labels else outputs

    def restore_best(self, run):
        """Loads the weights of the best checkpoint of a run into the model.

        Args:
            run: The `RunFolder`, or its path, of a run that was trained with
                the argument `best` of `fit`.

        Returns:
            The step of the checkpoint.
        """
        path = run.path if isinstance(run, RunFolder) else os.fspath(run)
        with self.strategy.scope():
            path = checkpointing.restore_model(
                os.path.join(path, "checkpoints"), self.model, which="best"
            )
        step = int(path.rpartition("-")[2])
        self._check_shared(path, step)
        return step

    def _make_step(self, loss, train_metrics):
        with self.strategy.scope():
            return Step(
                self.model,
                loss,
                self.optimizer,
                l2=self.l2,
                l2_on=self.l2_on,
                clip_norm=self.clip_norm,
                jit_compile=self.jit_compile,
                train_metrics=train_metrics,
                eval_metrics=self.eval_metrics,
            )

    def _make_train_function(self, step):
        """Returns a `tf.function` that takes several steps on all replicas."""
        # As in Keras, AutoGraph converts only the loop over steps. Converting
        # losses and metrics would take seconds before the first step.
        train = tf.autograph.experimental.do_not_convert(step.train)
        strategy = self.strategy

        def train_steps(iterator, num_steps):
            terms = tf.TensorArray(tf.float32, num_steps)
            for index in tf.range(num_steps):
                per_replica = strategy.run(train, args=next(iterator))
                total = strategy.reduce("SUM", per_replica, axis=None)
                terms = terms.write(index, total)
            return terms.stack()

        return tf.function(train_steps)

    def _make_batches_function(self, run, dtypes):
        """Returns a `tf.function` that runs several batches of an iterator.

        It returns the rows of their results, and the number of batches, which
        is smaller than `count` at the end.
        """
        run = tf.autograph.experimental.do_not_convert(run)

        def run_batches(iterator, count):
            labels = tf.nest.flatten(
                iterator.element_spec[1], expand_composites=True
            )
            results = [
                tf.TensorArray(dtype, 0, dynamic_size=True, infer_shape=False)
                for dtype in dtypes(labels[0].dtype)
            ]
            done = 0
            for index in tf.range(count):
                batch = iterator.get_next_as_optional()
                if not batch.has_value():
                    break
                values = run(batch.get_value())
                results = [
                    result.write(index, value)
                    for result, value in zip(results, values)  # noqa: B905
                ]
                done += 1
            if done == 0:
                # TensorFlow does not concatenate nothing.
                rows = [tf.zeros([0], result.dtype) for result in results]
            else:
                rows = [result.concat() for result in results]
            return rows, done

        return tf.function(run_batches)

    def _run_steps(self, phase, batches, count, first_step):
        """Takes steps and returns their loss terms, lists of floats by name."""
        terms = phase.function(batches, tf.constant(count)).numpy()
        finite = np.isfinite(terms).all(axis=1)
        if not finite.all():
            first = int(np.argmin(finite))
            parts = ", ".join(
                f"{name}={value}"
                for name, value in zip(
                    phase.step.names, terms[first], strict=True
                )
            )
            raise NonFiniteLossError(
                f"The loss is not finite at step {first_step + first}: {parts}"
                ". No checkpoint was written since."
            )
        return dict(zip(phase.step.names, terms.T.tolist(), strict=True))

    def _executions(self, function, dataset):
        """Yields the results of a function of several batches, as arrays."""
        iterator = iter(evaluation_input(self.strategy, dataset))
        pace = _Pace(self.steps_per_execution)
        count = done = 0
        while done == count:
            count, start = pace.steps, time.monotonic()
            results, done = function(iterator, tf.constant(count))
            results, done = [part.numpy() for part in results], int(done)
            if done:
                yield results
            (seconds,) = self._agree(time.monotonic() - start)
            pace.update(seconds / count)
            self._stop_if_asked()

    def _evaluate_batch(self, batch):
        per_replica = self.strategy.run(self._step.evaluate, args=batch)
        return [self.strategy.reduce("SUM", per_replica, axis=None)[tf.newaxis]]

    def _predict_batch(self, batch):
        logits = self.strategy.run(self._step.predict, args=batch[:1])
        return [self._collect(value) for value in (logits, *batch[1:])]

    def _collect(self, value):
        """Returns the rows of all replicas of all workers."""
        if is_multi_worker(self.strategy):
            return self.strategy.gather(value, axis=0)
        local = self.strategy.experimental_local_results(value)
        return tf.concat(local, axis=0)

    def _agree(self, *values):
        """Returns the means of values over workers, the same on all of them."""
        if not is_multi_worker(self.strategy):
            return values
        return self._worker_means(tf.constant(values, tf.float64)).numpy()

    def _worker_means(self, values):
        per_replica = self.strategy.run(tf.identity, args=(values,))
        return self.strategy.reduce("MEAN", per_replica, axis=None)

    def _stop_if_asked(self):
        """Ends `fit`, between its steps, after a signal to any worker."""
        if self._stop is None:
            return
        (stops,) = self._agree(self._stop.received is not None)
        if stops:
            self._stop.stop()

    def _open_checkpoints(self, run, keep, chief):
        weights = {id(variable) for variable in self.model.weights}
        variables = {
            "model": self.model.weights,
            "optimizer": self.optimizer.variables,
            # The seeds of dropout layers.
            "state": [v for v in self.model.variables if id(v) not in weights],
            "metrics": [v for m in self.train_metrics for v in m.variables],
        }
        folder = run and run.file("checkpoints")
        return checkpointing.Checkpoints(folder, variables, keep, chief)

    def _restore(self, checkpoints):
        with self.strategy.scope():
            path = checkpoints.restore()
        self._check_shared(path, checkpoints.position.step)
        return path

    def _check_shared(self, path, step):
        """Raises if workers have read different checkpoints."""
        if self._agree(step)[0] != step:
            raise ValueError(
                "The workers see different checkpoints; the run's folder must "
                "be on a file system that all of them share. "
                f"Received: {path} on this one"
            )

    def _measure(self, dataset, measure):
        """Returns floats by name, the same on every worker."""
        values = measure(*self.predict(dataset, with_labels=True))
        # Rounding differs between machines, but all must agree on the best.
        means = map(float, self._agree(*values.values()))
        return dict(zip(values, means, strict=True))

    def _train_row(self, phases, position):
        row = {"epoch": position.epoch + 1, "step": position.step}
        for phase in phases:
            for name, value in position.sums[phase.name].items():
                row[f"{phase.name}/{name}"] = value / phase.input.steps
        row.update(_prefixed("train", _results(self.train_metrics)))
        rate = tf.convert_to_tensor(self.optimizer.learning_rate)
        row["train/learning_rate"] = float(rate)
        return row

    def _check_best(self, best, evaluations, measures):
        unknown = sorted(set(measures) - set(evaluations))
        if unknown:
            raise ValueError(
                f"`measures` must be of evaluations, {sorted(evaluations)}. "
                f"Received: {unknown}"
            )
        if best is None or best.partition("/")[0] in measures:
            # The names of measures are known only when they are logged.
            return
        names = {metric.name for metric in self.eval_metrics} | {"loss"}
        logged = {f"{split}/{name}" for split in evaluations for name in names}
        if best not in logged:
            raise ValueError(
                f"`best` must be one of {sorted(logged)}. "
                f"Received: best={best!r}"
            )


def _check_logged(best, row):
    if best is not None and best not in row:
        logged = sorted(key for key in row if "/" in key)
        raise ValueError(
            f"`best` must be one of {logged}. Received: best={best!r}"
        )


@dataclasses.dataclass
class _Phase:
    """A part of an epoch: its batches and the loss on them."""

    name: str  # In the logs: `train` or `held_out`.
    input: TrainingInput
    step: Step
    function: Callable
    pace: "_Pace"
    first_step: int = 0


class _Pace:
    """How many steps to run at once: at most `most`, and a few seconds."""

    def __init__(self, most):
        self.steps = 1
        self._most = most
        self._is_compiled = False

    def update(self, seconds_per_step):
        """Takes the measured time into account."""
        if self._is_compiled:
            fit = _SECONDS_PER_EXECUTION / max(seconds_per_step, 1e-9)
            self.steps = max(1, min(self._most, int(fit)))
        self._is_compiled = True  # The first time is mostly compilation.


class _Profiler:
    """Profiles the steps of a window, if one is given."""

    def __init__(self, window, folder, chief):
        self._first, self._last = window or (math.inf, math.inf)
        self._folder = folder
        self._watches = chief and window is not None
        self._is_on = False

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.turn(math.inf)

    def turn(self, step):
        """Starts or stops profiling; returns the steps to the next change."""
        wanted = self._watches and self._first <= step < self._last
        if wanted and not self._is_on:
            tf.profiler.experimental.start(self._folder)
        elif self._is_on and not wanted:
            tf.profiler.experimental.stop()
        self._is_on = wanted
        # The same on every worker.
        turns = [turn - step for turn in (self._first, self._last)]
        return min((turn for turn in turns if turn > 0), default=math.inf)


def _show(summaries, bar, part, count, terms, position):
    means = {name: sum(values) / count for name, values in terms.items()}
    bar.set_postfix(means, refresh=False)
    bar.update(count)
    scalars = {f"batch/{part}/{name}": means[name] for name in means}
    if not bar.disable and bar.format_dict["rate"]:
        scalars["batch/steps_per_second"] = bar.format_dict["rate"]
    summaries.scalars(scalars, position.step)


def _lowest(rows, name):
    values = [row[name] for row in rows if row.get(name) is not None]
    return min([v for v in values if not math.isnan(v)], default=math.inf)


def _prefixed(prefix, values):
    return {f"{prefix}/{name}": value for name, value in values.items()}


def _results(metrics):
    return {metric.name: float(metric.result()) for metric in metrics}


def _reset(metrics):
    for metric in metrics:
        metric.reset_state()


def _copy(metric):
    copy = type(metric).from_config(metric.get_config())
    if not isinstance(copy, keras.metrics.Metric):
        raise ValueError(f"A metric has no config. Received: {metric}")
    return copy


def _check_arguments(loss, metrics, l2, l2_on, steps_per_execution, clip_norm):
    """Raises if an argument is invalid."""
    backend = keras.backend.backend()
    if backend != "tensorflow":
        raise RuntimeError(
            "`Trainer` is for Keras' TensorFlow backend: it trains under "
            "`tf.distribute`. Compile the model with the loss and use "
            "`model.fit`, which trains on every backend, or set "
            "KERAS_BACKEND=tensorflow before Keras is imported. "
            f"Received: backend={backend!r}"
        )
    if not isinstance(loss, keras.losses.Loss):
        raise ValueError(
            f"`loss` must be a `keras.losses.Loss`. Received: loss={loss!r}"
        )
    for metric in metrics:
        if not isinstance(metric, keras.metrics.Metric):
            raise ValueError(
                "`metrics` must hold `keras.metrics.Metric`s. "
                f"Received: {metric!r}"
            )
    names = [metric.name for metric in metrics]
    reserved = ("loss", "primary_loss", "secondary_loss", "l2_loss")
    if len({*names, *reserved}) < len(names) + len(reserved):
        raise ValueError(
            "`metrics` must have names of their own, and none of "
            f"{', '.join(reserved)}. Received: {names}"
        )
    if not l2 >= 0:
        raise ValueError(f"`l2` must be >= 0. Received: l2={l2}")
    if isinstance(l2_on, str):
        raise ValueError(
            f"`l2_on` must be a sequence of names. Received: l2_on={l2_on!r}"
        )
    if not isinstance(steps_per_execution, int) or steps_per_execution < 1:
        raise ValueError(
            "`steps_per_execution` must be an integer >= 1. "
            f"Received: steps_per_execution={steps_per_execution}"
        )
    if clip_norm is not None and not clip_norm > 0:
        raise ValueError(
            f"`clip_norm` must be > 0 or None. Received: clip_norm={clip_norm}"
        )


def _check_interleaved(held_out, calibration_loss):
    if (held_out is None) != (calibration_loss is None):
        raise ValueError(
            "`held_out` and `calibration_loss` go together. Received: "
            f"held_out={held_out}, calibration_loss={calibration_loss}"
        )


def _check_profile_steps(window, run):
    if window is None:
        return
    if len(window) != 2 or not 0 <= window[0] < window[1]:
        raise ValueError(
            "`profile_steps` must be two steps, the first one below the last. "
            f"Received: profile_steps={window}"
        )
    if run is None:
        raise ValueError(
            "`profile_steps` needs a `run`, whose summaries the profile is "
            "written to. Received: run=None"
        )


def _check_l2_names(model, l2_on):
    """Raises if no trainable variable has one of the names."""
    names = sorted({variable.name for variable in model.trainable_variables})
    unknown = [name for name in l2_on or () if name not in names]
    if unknown:
        raise ValueError(
            f"`l2_on` must name trainable variables, of {', '.join(names)}. "
            f"Received: {', '.join(map(repr, unknown))}"
        )


def _check_made_in_scope(strategy, model, optimizer, clip_norm):
    """Raises if model and optimizer cannot be trained on the strategy."""
    if not model.built or not model.trainable_variables:
        raise ValueError(
            "`model` must be built and have trainable variables. "
            f"Received: {model.name}, built={model.built}"
        )
    variables = [*model.variables, *optimizer.variables]
    for variable in variables:
        if not strategy.extended.variable_created_in_scope(variable.value):
            raise ValueError(
                "`model` and `optimizer` must be made inside `with "
                f"strategy.scope():`. Received: {variable.path}, which was not"
            )
    policies = {layer.dtype_policy.name for layer in layers_of(model)}
    scales = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    if "mixed_float16" in policies and not scales:
        raise ValueError(
            "`mixed_float16` needs `keras.optimizers.LossScaleOptimizer` "
            "around the optimizer, or small gradients become 0. "
            f"Received: optimizer={optimizer.name}"
        )
    inner = optimizer.inner_optimizer if scales else optimizer
    accumulates = inner.gradient_accumulation_steps
    if accumulates and scales and strategy.num_replicas_in_sync > 1:
        raise ValueError(
            "On several replicas, `gradient_accumulation_steps` does not go "
            "with a `LossScaleOptimizer`. Use `mixed_bfloat16`. "
            f"Received: gradient_accumulation_steps={accumulates}"
        )
    if accumulates and clip_norm:
        raise ValueError(
            "`clip_norm` would clip the gradient of each step before they are "
            "accumulated. "
            f"Received: clip_norm={clip_norm}, "
            f"gradient_accumulation_steps={accumulates}"
        )
    clips = ("clipnorm", "global_clipnorm")
    if strategy.num_replicas_in_sync > 1 and any(
        getattr(inner, name, None) for name in clips
    ):
        raise ValueError(
            "On several replicas, `clipnorm` and `global_clipnorm` of an "
            "optimizer clip each replica's gradient before they are added "
            "up. Pass `clip_norm` to the `Trainer`. "
            f"Received: optimizer={inner.name}"
        )
