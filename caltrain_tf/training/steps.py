"""One training, evaluation or prediction step on one replica."""

import inspect

import keras
import tensorflow as tf

from caltrain_tf.training.compilation import compiled
from caltrain_tf.training.compilation import compiled_part
from caltrain_tf.training.state import read_state
from caltrain_tf.training.state import values
from caltrain_tf.training.state import write_state


class Steps:
    """The steps of a model and an objective, compiled as far as possible.

    The model is called as a pure function of its weights and its state (moving
    statistics, seeds). What becomes of the state is written back outside.

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
            self._infer = compiled(self._forward)
        if self.compiled_part == "forward":
            self._forward = self._infer
        elif self.compiled_part == "gradients":
            self._gradients = compiled(self._gradients)
        elif self.compiled_part == "step":
            self.train = compiled(self.train)
            self.evaluate = compiled(self.evaluate)
            self.predict = compiled(self.predict)

    def train(self, x, y, weight=None):
        """Takes one optimizer step.

        Args:
            x: Inputs of this replica.
            y: Labels of this replica.
            weight: Weights of the examples, or None.

        Returns:
            The objective's terms, to be summed over the replicas.
        """
        weights = values(self.model.trainable_variables)
        state = read_state(self.model.non_trainable_variables)
        loss_scale = self.optimizer.scale_loss(tf.ones([]))
        gradients, terms, logits, state = self._gradients(
            weights, state, loss_scale, x, y, weight
        )
        self._apply(gradients)
        write_state(self.model.non_trainable_variables, state)
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
            values(self.model.trainable_variables),
            values(self.model.non_trainable_variables),
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
