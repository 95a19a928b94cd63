"""Streaming means: likelihood, Brier score and uncertainty."""

import keras
from keras import ops

from caltrain_tf import inputs
from caltrain_tf.metrics.streaming.base import StreamingMetric

# The smallest normal float32: its logarithm is finite.
SMALLEST_NORMAL = 1.1754944e-38


@keras.saving.register_keras_serializable("caltrain_tf")
class BrierScore(StreamingMetric):
    """`brier_score` over a stream; see there.

    Args:
        from_logits: Whether `y_pred` holds logits.
        name: The metric's name.
        dtype: Data type of the metric; the state is float32.
        multi_label: Whether the columns are binary problems, to be pooled.
        ignore_class: The label of examples that are ignored.

    Example:
        >>> import caltrain_tf as ct
        >>> metric = ct.metrics.BrierScore()
        >>> metric.update_state([0, 0], [[0.9, 0.1], [0.4, 0.6]])
        >>> round(float(metric.result()), 4)
        0.37
    """

    def __init__(
        self,
        from_logits=False,
        name="brier",
        dtype=None,
        *,
        multi_label=False,
        ignore_class=None,
    ):
        super().__init__(name, dtype, from_logits, multi_label, ignore_class)
        self.add_sums(2)

    def row_values(self, batch):
        """Squared distances from the label distribution."""
        probs = batch.probabilities()
        target = batch.label_distribution()
        return ops.sum(ops.square(probs - target), axis=-1)


@keras.saving.register_keras_serializable("caltrain_tf")
class NegativeLogLikelihood(StreamingMetric):
    """`negative_log_likelihood` over a stream; see there.

    Args:
        from_logits: Whether `y_pred` holds logits.
        name: The metric's name.
        dtype: Data type of the metric; the state is float32.
        multi_label: Whether the columns are binary problems, to be pooled.
        ignore_class: The label of examples that are ignored.

    Example:
        >>> import caltrain_tf as ct
        >>> metric = ct.metrics.NegativeLogLikelihood()
        >>> metric.update_state([0, 0], [[0.9, 0.1], [0.4, 0.6]])
        >>> round(float(metric.result()), 4)
        0.5108
    """

    def __init__(
        self,
        from_logits=False,
        name="nll",
        dtype=None,
        *,
        multi_label=False,
        ignore_class=None,
    ):
        super().__init__(name, dtype, from_logits, multi_label, ignore_class)
        self.add_sums(2)

    def row_values(self, batch):
        """Cross-entropies with the label distribution."""
        logs = batch.log_probabilities(inputs.SMALLEST_PROBABILITY)
        target = batch.label_distribution()
        return -ops.sum(target * logs, axis=-1)


@keras.saving.register_keras_serializable("caltrain_tf")
class AverageUncertainty(StreamingMetric):
    """`average_uncertainty` over a stream; see there.

    Args:
        from_logits: Whether `y_pred` holds logits.
        name: The metric's name.
        dtype: Data type of the metric; the state is float32.
        multi_label: Whether the columns are binary problems, to be pooled.
        ignore_class: The label of examples that are ignored.

    Example:
        >>> import caltrain_tf as ct
        >>> metric = ct.metrics.AverageUncertainty()
        >>> metric.update_state([0, 0], [[0.5, 0.5], [1.0, 0.0]])
        >>> round(float(metric.result()), 4)
        0.3466
    """

    def __init__(
        self,
        from_logits=False,
        name="average_uncertainty",
        dtype=None,
        *,
        multi_label=False,
        ignore_class=None,
    ):
        super().__init__(name, dtype, from_logits, multi_label, ignore_class)
        self.add_sums(2)

    def row_values(self, batch):
        """Entropies in nats."""
        probs = batch.probabilities()
        if self.from_logits:
            logs = batch.log_probabilities()
        else:
            logs = ops.log(ops.maximum(probs, SMALLEST_NORMAL))
        return -ops.sum(probs * logs, axis=-1)
