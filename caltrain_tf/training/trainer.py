"""The training loop as a user sees it."""

import keras
import numpy as np
import tensorflow as tf

from caltrain_tf.training.checks import check_arguments
from caltrain_tf.training.checks import check_l2_names
from caltrain_tf.training.checks import check_made_in_scope
from caltrain_tf.training.execution import Execution
from caltrain_tf.training.execution import metric_values
from caltrain_tf.training.fitting import Fitting
from caltrain_tf.training.objective import Objective
from caltrain_tf.training.phase import Phase
from caltrain_tf.training.steps import Steps


class Trainer:
    """Trains a classifier on any `tf.distribute` strategy.

    R replicas with batches of B/R end in the weights of one replica with a
    batch of B: the loss, l2, the models' own regularisation losses and the norm
    that is clipped are those of the global batch. For this a calibration loss
    needs `cross_replica=True`, and BatchNormalization `synchronized=True`:
    without it each replica normalises with the statistics of its own part, as
    TPUs usually do. The moving statistics are the mean over replicas.

    XLA compiles all of a step on one device and on TPUs. On several GPUs or
    machines it compiles what does not communicate: see `compiled_part`.

    Args:
        model: A built model that returns logits, or what the loss expects.
        loss: A `keras.losses.Loss`, such as `CompositeLoss`.
        optimizer: A Keras optimizer. Model and optimizer are made inside
            `with strategy.scope():`.
        strategy: From `get_strategy`; the current one if None.
        metrics: Keras metrics `(y_true, y_pred, sample_weight)`. They are
            templates: the trainer makes copies. Their names become those of
            the logs, such as `negative_log_likelihood` and `ece`.
        l2: Factor of the sum of squares that is added to the loss, in all
            phases of training.
        l2_on: Names of the variables whose squares are summed. None is all
            trainable ones, scale and offset of BatchNormalization too, as
            Uncertainty Baselines does on CIFAR; on ImageNet it takes
            `("kernel", "bias")`.
        jit_compile: Whether XLA compiles.
        steps_per_execution: Steps inside one `tf.function` call. Signals and a
            loss that is not finite are seen after each.
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
        """Checks that everything fits together and builds the optimizer."""
        check_arguments(
            loss, metrics, l2, l2_on, steps_per_execution, clip_norm
        )
        self.strategy = strategy or tf.distribute.get_strategy()
        check_made_in_scope(self.strategy, model, optimizer)
        check_l2_names(model, l2_on)
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
        self._execution = self._execution_of(loss, self.train_metrics)

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
        best=None,
        run=None,
        config=None,
        keep=3,
        checkpoint_every_steps=None,
        on_epoch_end=None,
        verbose=True,
    ):
        """Trains, or goes on from the newest checkpoint of the run's folder.

        Interleaved training (appendix B of the paper): with `held_out`, each
        epoch first takes the loss on `dataset`, then `calibration_loss` on
        `held_out`. Both phases count as steps of the learning rate schedule.

        A killed run ends in the weights of one that was not, provided that the
        data of an epoch are a function of the epoch alone: pass a callable, or
        a dataset that does not reshuffle.

        Args:
            dataset: Batches `(x, y)` or `(x, y, weight)`, global ones and in
                the order in which they are to be used; or a callable that
                returns them for an epoch, counted from 0.
            epochs: How many epochs the run has in all.
            dataset_steps: Batches of an epoch, where the dataset does not tell.
            held_out: The held-out part for interleaved training, likewise.
            held_out_steps: Its batches, likewise.
            calibration_loss: What is optimised on the held-out part. On several
                replicas, `CompositeLoss("sb_ece", cross_replica=True)`.
            evaluations: Datasets by name, such as `{"calibration": ...,
                "test": ...}`, whose metrics are logged as `test/accuracy`.
            evaluate_every: How many epochs lie between evaluations; the last
                epoch always has one.
            best: The logged value whose minimum marks the best checkpoint.
                `calibration/negative_log_likelihood` if None and logged.
            run: A `RunFolder` that is open, or a path. Without it nothing is
                written.
            config: With a path, the configuration to keep and compare.
            keep: How many of the newest checkpoints to keep.
            checkpoint_every_steps: Also save inside epochs, this often.
            on_epoch_end: Called with the epoch's row and the `Summaries`,
                before the checkpoint is written.
            verbose: Whether to show progress.

        Returns:
            The rows of the log, on the chief those before a restart too.

        Raises:
            NonFiniteLossError: With the step and the parts of the loss.
            Preempted: Ends the process with code 143 after SIGTERM, with a
                checkpoint written.
            KeyboardInterrupt: After Ctrl-C; with `run`, once the step is done
                and a checkpoint is written, or at once after a second one.
        """
        train = ("train", "dataset", dataset, dataset_steps)
        phases = [Phase(*train, self._execution)]
        if (held_out is None) != (calibration_loss is None):
            raise ValueError(
                "`held_out` and `calibration_loss` go together. Received: "
                f"held_out={held_out}, calibration_loss={calibration_loss}"
            )
        if held_out is not None:
            execution = self._execution_of(calibration_loss, ())
            second = ("held_out", "held_out", held_out, held_out_steps)
            phases.append(Phase(*second, execution))
        fitting = Fitting(
            self,
            phases,
            epochs,
            evaluations or {},
            evaluate_every,
            best,
            checkpoint_every_steps,
            on_epoch_end,
        )
        return fitting.run(run, config, keep, verbose)

    def evaluate(self, dataset):
        """The metrics and the loss of a dataset, every example once.

        Args:
            dataset: Batches `(x, y)` or `(x, y, weight)`; the last one may be
                smaller. An example of weight 0 counts nothing.

        Returns:
            Floats by name. The loss is the mean over batches, without l2.
        """
        for metric in self.eval_metrics:
            metric.reset_state()
        values = self._execution.evaluate(dataset)
        return {**values, **metric_values(self.eval_metrics)}

    def predict(self, dataset, with_labels=False):
        """The model's outputs in the order of the dataset.

        Args:
            dataset: Batches `x`, `(x, y)` or `(x, y, weight)`. Examples of
                weight 0 are padding and dropped.
            with_labels: Whether to return the labels of the same rows too.

        Returns:
            An array `(examples, classes)`, or a pair of it and the labels.
        """
        outputs, labels = [], []
        for rows, y, weight in self._execution.predict(dataset):
            outputs.append(rows[weight != 0])
            labels.append(y[weight != 0])
        outputs, labels = np.concatenate(outputs), np.concatenate(labels)
        return (outputs, labels) if with_labels else outputs

    def _execution_of(self, loss, train_metrics):
        objective = Objective(loss, self.l2, self.l2_on)
        with self.strategy.scope():
            steps = Steps(
                self.model,
                objective,
                self.optimizer,
                self.clip_norm,
                self.jit_compile,
                train_metrics,
                self.eval_metrics,
            )
        return Execution(self.strategy, steps)


def _copy(metric):
    copy = type(metric).from_config(metric.get_config())
    if not isinstance(copy, keras.metrics.Metric):
        raise ValueError(f"A metric has no config. Received: {metric}")
    return copy
