"""The Kolmogorov-Smirnov calibration error over a stream."""

import keras
from keras import ops

from caltrain_tf.metrics.streaming import histogram
from caltrain_tf.metrics.streaming.cells import CellMetric
from caltrain_tf.metrics.streaming.cells import Cells
from caltrain_tf.ops import predictions

NUM_CELLS = 2**16


@keras.saving.register_keras_serializable("caltrain_tf")
class KSError(CellMetric):
    """`ks_error` over a stream; see there.

    Examples whose confidences share one of 65,536 cells enter together.

    Args:
        from_logits: Whether `y_pred` holds logits.
        name: The metric's name.
        dtype: Of the metric; the state is float32.

    Example:
        >>> import caltrain_tf as ct
        >>> metric = ct.metrics.KSError()
        >>> metric.update_state([0, 0], [[0.9, 0.1], [0.8, 0.2]])
        >>> metric.update_state([1, 0], [[0.3, 0.7], [0.4, 0.6]])
        >>> round(float(metric.result()), 4)
        0.15
    """

    def __init__(self, from_logits=False, name="ks_error", dtype=None):
        """Takes whether predictions are logits."""
        super().__init__(from_logits, name, dtype)
        self.add_cells(NUM_CELLS)

    def batch_sums(self, y_true, y_pred, weight):
        """Fills the cells with confidences and correctness."""
        confidence = predictions.confidence(y_pred, self.from_logits)
        correct = predictions.correctness(y_true, y_pred)
        cells = histogram.cells_towards_one(confidence, NUM_CELLS)
        return self.fill(cells, confidence, correct, weight)

    def grid(self):
        """The cells of the state."""
        return histogram.grid_towards_one(NUM_CELLS)

    def value(self, sums):
        """The largest cumulated difference."""
        cells = Cells(*ops.unstack(sums, axis=-1))
        cumulated = ops.abs(histogram.cumulated(self.excess(cells)))
        return ops.divide_no_nan(
            ops.max(cumulated), histogram.total(cells.count)
        )
