"""One training, evaluation or prediction step on one replica."""

import inspect

import keras
import tensorflow as tf

# Replicas draw dropout masks of their own: their seeds are this far apart.
_SEED_STRIDE = 1_000_003


class Steps:
    """The steps of a model and an objective, compiled as far as possible.

    The model is called as a pure function of its weights and its state (moving
    statistics, seeds). New state is written back outside: as a mean over the
    replicas, since Keras would leave every replica with statistics of its own.

    Args:
        model: A built Keras model, made in the strategy's scope.
        objective: The `Objective`.
        optimizer: A Keras optimizer, made in the strategy's scope.
        clip_norm: Largest global norm of the global gradient, or None.
        jit_compile: Whether XLA compiles.
        train_metrics: Keras metrics that training updates.
        eval_metrics: Keras metrics that evaluation updates.
    """

    def __init__(
        self,
        model,
        objective,
        optimizer,
        clip_norm=None,
        jit_compile=True,
        train_metrics=(),
        eval_metrics=(),
    ):
        """Wraps what XLA can compile on the current strategy's devices."""
        self.model = model
        self.objective = objective
        self.optimizer = optimizer
        self.clip_norm = clip_norm
        self.train_metrics = train_metrics
        self.eval_metrics = eval_metrics
        self.scales_loss = isinstance(
            optimizer, keras.optimizers.LossScaleOptimizer
        )
        parameters = inspect.signature(model.call).parameters
        self.passes_training = "training" in parameters or any(
            parameter.kind is parameter.VAR_KEYWORD
            for parameter in parameters.values()
        )
        self.compiled_part = compiled_part(model, objective, jit_compile)
        self._infer = self._forward
        if self.compiled_part in ("forward", "gradients"):
            self._infer = _compile(self._forward)
        if self.compiled_part == "forward":
            self._forward = self._infer
        elif self.compiled_part == "gradients":
            self._gradients = _compile(self._gradients)
        elif self.compiled_part == "step":
            self.train = _compile(self.train)
            self.evaluate = _compile(self.evaluate)
            self.predict = _compile(self.predict)

    def train(self, x, y, weight=None):
        """Takes one optimizer step.

        Args:
            x: Inputs of this replica.
            y: Labels of this replica.
            weight: Weights of the examples, or None.

        Returns:
            The objective's terms, to be summed over the replicas.
        """
        weights = _values(self.model.trainable_variables)
        state = self._read_state()
        loss_scale = self.optimizer.scale_loss(tf.ones([]))
        gradients, terms, logits, state = self._gradients(
            weights, state, loss_scale, x, y, weight
        )
        self._apply(gradients)
        self._write_state(state)
        for metric in self.train_metrics:
            metric.update_state(y, logits, sample_weight=weight)
        return terms

    def evaluate(self, x, y, weight):
        """Returns the sum of weights x terms, then the sum of weights."""
        logits = self.predict(x)
        for metric in self.eval_metrics:
            metric.update_state(y, logits, sample_weight=weight)
        terms = self.objective.evaluate(y, logits, weight)
        total = tf.reduce_sum(weight)
        # A replica that has nothing but padding counts nothing.
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
        options = {"training": training} if self.passes_training else {}
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
            penalty = None
            if self.objective.l2:
                variables = self.model.trainable_variables
                penalty = self.objective.penalty(variables, weights)
            terms = self.objective(y, logits, weight, penalty, losses)
            target = terms[0] * loss_scale
        gradients = tape.gradient(target, weights, unconnected_gradients="zero")
        return gradients, terms, logits, state

    def _apply(self, gradients):
        context = tf.distribute.get_replica_context()
        replicas = context.num_replicas_in_sync
        # The norm, and whether a scaled gradient overflowed, are those of the
        # sum over replicas. Keras adds up by itself, so it is given shares.
        if replicas > 1 and (self.clip_norm or self.scales_loss):
            gradients = context.all_reduce("SUM", gradients)
            gradients = [gradient / replicas for gradient in gradients]
        else:
            replicas = 1
        if self.clip_norm:
            norm = tf.linalg.global_norm(gradients) * replicas
            if self.scales_loss:
                norm = norm / tf.convert_to_tensor(self.optimizer.dynamic_scale)
            factor = self.clip_norm / tf.maximum(norm, self.clip_norm)
            gradients = [gradient * factor for gradient in gradients]
        self.optimizer.apply(gradients, self.model.trainable_variables)

    def _read_state(self):
        variables = self.model.non_trainable_variables
        return [
            value + self._seed_offset(variable) if _is_seed(variable) else value
            for variable, value in zip(
                variables, _values(variables), strict=True
            )
        ]

    def _write_state(self, state):
        context = tf.distribute.get_replica_context()
        variables = self.model.non_trainable_variables
        state = list(state)
        floats = [
            index
            for index, variable in enumerate(variables)
            if tf.as_dtype(variable.dtype).is_floating
        ]
        if context.num_replicas_in_sync > 1 and floats:
            means = context.all_reduce("MEAN", [state[i] for i in floats])
            for index, mean in zip(floats, means, strict=True):
                state[index] = mean
        for variable, value in zip(variables, state, strict=True):
            if _is_seed(variable):
                value = value - self._seed_offset(variable)
            variable.assign(value)

    def _seed_offset(self, variable):
        context = tf.distribute.get_replica_context()
        replica = tf.cast(context.replica_id_in_sync_group, variable.dtype)
        return tf.stack([replica * _SEED_STRIDE, tf.zeros_like(replica)])


def compiled_part(model, objective, jit_compile):
    """What XLA compiles: `"step"`, `"gradients"`, `"forward"` or None.

    On CPU and GPU, XLA cannot compile what communicates between replicas: the
    sum of gradients, a loss with `cross_replica=True` and BatchNormalization
    with `synchronized=True`. A TPU compiles all of a step without being asked.
    """
    strategy = tf.distribute.get_strategy()
    if not jit_compile or isinstance(strategy, tf.distribute.TPUStrategy):
        return None
    multi_worker = tf.distribute.MultiWorkerMirroredStrategy
    if strategy.num_replicas_in_sync == 1 and not isinstance(
        strategy, multi_worker
    ):
        return "step"
    layers = model._flatten_layers()
    if any(getattr(layer, "synchronized", False) for layer in layers):
        return None
    return "forward" if objective.communicates else "gradients"


def _compile(function):
    return tf.function(function, jit_compile=True, autograph=False)


def _values(variables):
    return [tf.convert_to_tensor(variable.value) for variable in variables]


def _is_seed(variable):
    return variable.name == "seed_generator_state"
