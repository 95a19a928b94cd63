"""What a training step minimises, as a vector of named terms."""

import tensorflow as tf


class Objective:
    """The loss, its parts and the penalties, each divided by the replicas.

    Summed over the replicas, every term is what one replica with the global
    batch has. Keras losses divide themselves; the parts of a composite loss,
    the model's own regularisation losses and l2 do not and are divided here.

    Args:
        loss: A `keras.losses.Loss`. One with `parts(y_true, y_pred, weight)`
            and `beta`, as `CompositeLoss`, is taken apart once and not called.
        l2: Factor of the sum of squares of the penalised variables.
        l2_on: Names of the penalised variables, or None for all.
    """

    def __init__(self, loss, l2=0.0, l2_on=None):
        """Names the terms."""
        self.loss = loss
        self.l2 = l2
        self.l2_on = l2_on
        self.has_parts = hasattr(loss, "parts") and hasattr(loss, "beta")
        self.communicates = bool(getattr(loss, "cross_replica", False))
        # Losses of a whole batch weigh examples inside their function.
        function = getattr(loss, "function", None)
        of_batch = not getattr(function, "per_example", True)
        self.weighs_inside = self.has_parts or of_batch
        parts = ("primary_loss", "secondary_loss") if self.has_parts else ()
        self.names = ("loss", *parts, *(("l2_loss",) if l2 else ()))

    def penalty(self, variables, weights):
        """l2 x the sum of squares; `weights` are the variables' values."""
        penalised = [
            weight
            for variable, weight in zip(variables, weights, strict=True)
            if self.l2_on is None or variable.name in self.l2_on
        ]
        return self.l2 * tf.add_n(
            [tf.reduce_sum(tf.square(weight)) for weight in penalised]
        )

    def __call__(self, y_true, y_pred, weight, penalty, model_losses):
        """Returns the terms; the first one is to be minimised."""
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        extra = [loss / replicas for loss in model_losses]
        if self.l2:
            extra.append(penalty / replicas)
        values, parts = self._values(y_true, y_pred, weight, replicas)
        total = tf.add_n([values, *extra])
        return tf.stack([total, *parts, *(extra[-1:] if self.l2 else ())])

    def evaluate(self, y_true, y_pred, weight):
        """The weighted means of the loss and its parts on this replica.

        Without penalties. Keras divides a weighted loss by the rows of the
        batch, padding included; here it is divided by the weights.
        """
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        value, parts = self._values(y_true, y_pred, weight, replicas)
        terms = tf.stack([value, *parts]) * replicas
        if not self.weighs_inside:
            rows = tf.cast(tf.size(weight), tf.float32)
            terms = terms * tf.math.divide_no_nan(rows, tf.reduce_sum(weight))
        return terms

    def _values(self, y_true, y_pred, weight, replicas):
        if not self.has_parts:
            value = self.loss(y_true, y_pred, sample_weight=weight)
            return tf.cast(value, tf.float32), ()
        parts = [
            tf.cast(part, tf.float32) / replicas
            for part in self.loss.parts(y_true, y_pred, weight)
        ]
        return parts[0] + self.loss.beta * parts[1], parts
