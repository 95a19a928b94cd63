"""One step on one replica: the loss, its gradient, and what XLA compiles."""

import dataclasses
import inspect

import keras
import tensorflow as tf

from caltrain_tf.training.strategy import is_multi_worker

# Distance between the seeds of replicas, which draw different dropout masks.
_SEED_STRIDE = 1_000_003


@dataclasses.dataclass(eq=False)
class Step:
    """Training, evaluation and prediction on one replica's part of a batch.

    The model is called as a pure function of its weights and its state (moving
    statistics, seeds). The loss is a vector of terms, with `names` in training
    and `eval_names` in evaluation. Each is divided by the number of replicas,
    as Keras losses do themselves, so that their sum is that of the whole batch.
    """

    model: keras.Model
    loss: keras.losses.Loss
    optimizer: keras.optimizers.Optimizer
    l2: float
    l2_on: tuple | None
    clip_norm: float | None
    jit_compile: bool
    train_metrics: list
    eval_metrics: list

    def __post_init__(self):
        """Names the terms, and compiles what XLA can compile."""
        if not isinstance(self.loss, keras.losses.Loss):
            raise ValueError(
                "`loss` must be a `keras.losses.Loss`. "
                f"Received: loss={self.loss!r}"
            )
        self.scales_loss = isinstance(
            self.optimizer, keras.optimizers.LossScaleOptimizer
        )
        self.has_parts = hasattr(self.loss, "terms")
        parts = ("primary_loss", "secondary_loss") if self.has_parts else ()
        self.eval_names = ("loss", *parts)
        self.names = (*self.eval_names, *(("l2_loss",) if self.l2 else ()))
        # As in Keras' `fit`.
        parameters = inspect.signature(self.model.call).parameters
        self.takes_training = "training" in parameters
        part = compiled_part(self.model, self.loss, self.jit_compile)
        self._infer = self._forward
        if part in ("forward", "gradients"):
            self._infer = _compiled(self._forward)
        if part == "forward":
            self._forward = self._infer
        elif part == "gradients":
            self._gradients = _compiled(self._gradients)
        elif part == "step":
            self.train = _compiled(self.train)
            self.evaluate = _compiled(self.evaluate)
            self.predict = _compiled(self.predict)

    def train(self, x, y, weight=None):
        """Takes one optimizer step; returns the terms of the loss."""
        weights = _values(self.model.trainable_variables)
        variables = self.model.non_trainable_variables
        state = _move_seeds(variables, _values(variables), _SEED_STRIDE)
        loss_scale = self.optimizer.scale_loss(tf.ones([]))
        gradients, terms, logits, state = self._gradients(
            weights, state, loss_scale, x, y, weight
        )
        self._apply(gradients)
        state = _mean_over_replicas(state)
        state = _move_seeds(variables, state, -_SEED_STRIDE)
        for variable, value in zip(variables, state, strict=True):
            variable.assign(value)
        for metric in self.train_metrics:
            metric.update_state(y, logits, sample_weight=weight)
        return terms

    def evaluate(self, x, y, weight):
        """Returns the terms times the sum of weights, then the sum of weights.

        The terms are means without penalties, over the sum of the weights.
        Keras divides by the rows of the batch, with padding.
        """
        logits = self.predict(x)
        for metric in self.eval_metrics:
            metric.update_state(y, logits, sample_weight=weight)
        total = tf.reduce_sum(weight)
        if self.has_parts:
            terms = tf.stack(self.loss.terms(y, logits, weight))
        elif hasattr(self.loss, "weighted_mean"):
            terms = self.loss.weighted_mean(y, logits, weight)[tf.newaxis]
        else:
            value, _ = self._loss_values(y, logits, weight)
            replicas = tf.distribute.get_strategy().num_replicas_in_sync
            rows = tf.cast(tf.size(weight), tf.float32) * replicas
            terms = value[tf.newaxis] * tf.math.divide_no_nan(rows, total)
        # A replica whose rows are all padding contributes 0.
        terms = tf.math.multiply_no_nan(terms, total)
        return tf.concat([terms, [total]], axis=0)

    def predict(self, x):
        """Returns the model's outputs in float32."""
        return self._infer(
            _values(self.model.trainable_variables),
            _values(self.model.non_trainable_variables),
            x,
            training=False,
        )[0]

    def _forward(self, weights, state, x, training):
        options = {"training": training} if self.takes_training else {}
        outputs, state, losses = self.model.stateless_call(
            weights, state, x, return_losses=True, **options
        )
        losses = [tf.cast(loss, tf.float32) for loss in losses]
        return tf.cast(outputs, tf.float32), state, losses

    def _gradients(self, weights, state, loss_scale, x, y, weight):
        with tf.GradientTape() as tape:
            tape.watch(weights)
            logits, state, losses = self._forward(
                weights, state, x, training=True
            )
            terms = self._terms(y, logits, weight, weights, losses)
            target = terms[0] * loss_scale
        gradients = tape.gradient(target, weights, unconnected_gradients="zero")
        return gradients, terms, logits, state

    def _terms(self, y, logits, weight, weights, model_losses):
        """Returns the terms in the order of `names`; the first is the total."""
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        extra = [loss / replicas for loss in model_losses]
        if self.l2:
            variables = self.model.trainable_variables
            squares = [
                tf.reduce_sum(tf.square(value))
                for variable, value in zip(variables, weights, strict=True)
                if self.l2_on is None or variable.name in self.l2_on
            ]
            extra.append(self.l2 * tf.add_n(squares) / replicas)
        value, parts = self._loss_values(y, logits, weight)
        total = tf.add_n([value, *extra])
        return tf.stack([total, *parts, *(extra[-1:] if self.l2 else ())])

    def _loss_values(self, y, logits, weight):
        if not self.has_parts:
            value = self.loss(y, logits, sample_weight=weight)
            return tf.cast(value, tf.float32), ()
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        value, *parts = [
            tf.cast(term, tf.float32) / replicas
            for term in self.loss.terms(y, logits, weight)
        ]
        return value, parts

    def _apply(self, gradients):
        context = tf.distribute.get_replica_context()
        replicas = context.num_replicas_in_sync
        # The norm and the check for overflow need the sum of the gradients over
        # replicas. Keras sums gradients itself, so each replica gets its share.
        if replicas > 1 and (self.clip_norm or self.scales_loss):
            gradients = context.all_reduce("SUM", gradients)
            gradients = [gradient / replicas for gradient in gradients]
        if self.clip_norm:
            norm = tf.linalg.global_norm(gradients) * replicas
            if self.scales_loss:
                norm = norm / tf.convert_to_tensor(self.optimizer.dynamic_scale)
            factor = self.clip_norm / tf.maximum(norm, self.clip_norm)
            gradients = [gradient * factor for gradient in gradients]
        self.optimizer.apply(gradients, self.model.trainable_variables)


def compiled_part(model, loss, jit_compile):
    """Returns what XLA compiles: `"step"`, `"gradients"`, `"forward"` or None.

    On CPU and GPU, XLA cannot compile communication between replicas: the sum
    of gradients, a loss with `cross_replica=True`, which leaves the model's
    forward pass, and so its backward pass, and BatchNormalization with
    `synchronized=True`. On a TPU, the whole step is always compiled.
    """
    strategy = tf.distribute.get_strategy()
    if not jit_compile or isinstance(strategy, tf.distribute.TPUStrategy):
        return None
    # With several workers, all-reduces are collectives even for one replica.
    if strategy.num_replicas_in_sync == 1 and not is_multi_worker(strategy):
        return "step"
    if any(getattr(each, "synchronized", False) for each in layers_of(model)):
        return None
    return "forward" if getattr(loss, "cross_replica", False) else "gradients"


def layers_of(model):
    """Yields a model, its layers and the layers of models among them."""
    yield model
    for layer in getattr(model, "layers", ()):
        yield from layers_of(layer)


def _compiled(function):
    return tf.function(function, jit_compile=True, autograph=False)


def _values(variables):
    """Returns the values of Keras variables on this replica."""
    return [tf.convert_to_tensor(variable.value) for variable in variables]


def _move_seeds(variables, state, stride):
    """Adds the replica's number times the stride to the seeds in `state`."""
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    distance = stride * tf.cast([replica, 0], tf.int64)
    return [
        value + tf.cast(distance, value.dtype)
        if variable.name == "seed_generator_state"
        else value
        for variable, value in zip(variables, state, strict=True)
    ]


def _mean_over_replicas(state):
    """Averages floats, such as the statistics of BatchNormalization."""
    # Keras would keep other ones on every replica, and save those of the first.
    context = tf.distribute.get_replica_context()
    floats = [i for i, value in enumerate(state) if value.dtype.is_floating]
    if context.num_replicas_in_sync > 1 and floats:
        means = context.all_reduce("MEAN", [state[i] for i in floats])
        for index, mean in zip(floats, means, strict=True):
            state[index] = mean
    return state
