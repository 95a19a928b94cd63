"""The mean entropy over a stream."""

import keras
from keras import ops

from caltrain_tf.metrics.streaming.base import MeanMetric
from caltrain_tf.ops import predictions

# The smallest normal float32: its logarithm is finite.
SMALLEST_PROBABILITY = 1.1754944e-38


@keras.saving.register_keras_serializable("caltrain_tf")
class AverageUncertainty(MeanMetric):
    """`average_uncertainty` over a stream; see there.

    Args:
        from_logits: Whether `y_pred` holds logits.
        name: The metric's name.
        dtype: Of the metric; the state is float32.

    Example:
        >>> import caltrain_tf as ct
        >>> metric = ct.metrics.AverageUncertainty()
        >>> metric.update_state([0, 0], [[0.5, 0.5], [1.0, 0.0]])
        >>> round(float(metric.result()), 4)
        0.3466
    """

    def __init__(
        self, from_logits=False, name="average_uncertainty", dtype=None
    ):
        """Takes whether predictions are logits."""
        super().__init__(from_logits, name, dtype)

    def row_values(self, y_true, y_pred):
        """Entropies in nats."""
        probs = predictions.probabilities(y_pred, self.from_logits)
        if self.from_logits:
            logarithm = predictions.log_probabilities(y_pred, True)
        else:
            logarithm = ops.log(ops.maximum(probs, SMALLEST_PROBABILITY))
        return -ops.sum(probs * logarithm, axis=-1)
