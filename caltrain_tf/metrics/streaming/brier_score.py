"""The Brier score over a stream."""

import keras
from keras import ops

from caltrain_tf.metrics.streaming.base import MeanMetric
from caltrain_tf.ops import labels
from caltrain_tf.ops import predictions


@keras.saving.register_keras_serializable("caltrain_tf")
class BrierScore(MeanMetric):
    """`brier_score` over a stream; see there.

    Args:
        from_logits: Whether `y_pred` holds logits.
        name: The metric's name.
        dtype: Of the metric; the state is float32.

    Example:
        >>> import caltrain_tf as ct
        >>> metric = ct.metrics.BrierScore()
        >>> metric.update_state([0, 0], [[0.9, 0.1], [0.4, 0.6]])
        >>> round(float(metric.result()), 4)
        0.37
    """

    def __init__(self, from_logits=False, name="brier", dtype=None):
        """Takes whether predictions are logits."""
        super().__init__(from_logits, name, dtype)

    def row_values(self, y_true, y_pred):
        """Squared distances from the label distribution."""
        target = labels.label_distribution(y_true, y_pred.shape[-1])
        probs = predictions.probabilities(y_pred, self.from_logits)
        values = ops.sum(ops.square(probs - target), axis=-1)
        return labels.nan_where_invalid(values, y_true, y_pred.shape[-1])
