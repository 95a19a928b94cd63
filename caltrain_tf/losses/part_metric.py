"""The parts of a composite loss as numbers of their own."""

import keras
from keras import ops

from caltrain_tf.checks import check_choice
from caltrain_tf.losses.composite import CompositeLoss


@keras.saving.register_keras_serializable("caltrain_tf")
class PartMetric(keras.metrics.Mean):
    """The mean over batches of one part of a `CompositeLoss`.

    Made by `loss.part_metrics()`. Compiled together, XLA computes the part once
    for the loss and the metric.

    Args:
        loss: The `CompositeLoss`, or its config.
        part: `"primary"` or `"secondary"`.
        name: The metric's name; `"primary_loss"` or `"secondary_loss"`.
        dtype: Of the metric.
    """

    PARTS = ("primary", "secondary")

    def __init__(self, loss, part, name=None, dtype=None):
        """Keeps the loss whose part is shown."""
        check_choice("part", part, self.PARTS)
        super().__init__(name=name or f"{part}_loss", dtype=dtype)
        if not isinstance(loss, CompositeLoss):
            loss = keras.saving.deserialize_keras_object(loss)
        self.loss = loss
        self.part = part

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Adds a batch, which counts for as many examples as it has."""
        parts = self.loss.parts(y_true, y_pred, sample_weight)
        if sample_weight is None:
            count = ops.shape(y_pred)[0]
        else:
            count = ops.sum(ops.cast(sample_weight, "float32"))
        super().update_state(parts[self.PARTS.index(self.part)], count)

    def get_config(self):
        """Everything that the constructor takes."""
        return {
            **super().get_config(),
            "loss": keras.saving.serialize_keras_object(self.loss),
            "part": self.part,
        }
