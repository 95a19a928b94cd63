"""The expected calibration error over a stream."""

import keras
from keras import ops

from caltrain_tf.metrics.options import check_bins
from caltrain_tf.metrics.streaming import bins
from caltrain_tf.metrics.streaming import histogram
from caltrain_tf.metrics.streaming.cells import CellMetric
from caltrain_tf.metrics.streaming.cells import Cells
from caltrain_tf.ops import predictions

# 2.6 MB of state. Among 10,000 confidences, hardly three share a cell.
NUM_CELLS = 2**16
# Bins of equal width need cells only for the label estimator.
CELLS_PER_BIN = 2**8


@keras.saving.register_keras_serializable("caltrain_tf")
class ExpectedCalibrationError(CellMetric):
    """`calibration_error` over a stream; see there for the options.

    The confidences are counted in 65,536 cells that are narrower the closer
    they are to 1, and equal-mass bins are runs of cells: within 2e-4 of the
    exact value. Bins of equal width are exact but for rounding.
    `sample_weight` weighs examples inside the bins; for `debias=True` weights
    are taken as numbers of examples.

    Args:
        num_bins: Number of bins.
        norm: 1, 2 or `math.inf`.
        binning: `"equal_mass"`, or `"equal_width"` on [0, 1].
        estimator: `"bin"` or `"label"`.
        debias: Whether to subtract the bias; for `norm=2, estimator="bin"`.
        from_logits: Whether `y_pred` holds logits.
        name: The metric's name.
        dtype: Of the metric; the state is float32.

    Example:
        >>> import caltrain_tf as ct
        >>> metric = ct.metrics.ExpectedCalibrationError(num_bins=2)
        >>> metric.update_state([0, 0], [[0.9, 0.1], [0.8, 0.2]])
        >>> metric.update_state([1, 0], [[0.3, 0.7], [0.4, 0.6]])
        >>> round(float(metric.result()), 4)
        0.15
    """

    def __init__(
        self,
        num_bins=15,
        norm=2,
        binning="equal_mass",
        estimator="bin",
        debias=False,
        from_logits=False,
        name="ece",
        dtype=None,
    ):
        """Takes the options of `calibration_error`."""
        options = check_bins(num_bins, norm, binning, estimator, debias)
        super().__init__(from_logits, name, dtype)
        self.num_bins, self.norm, self.binning = options[:3]
        self.estimator, self.debias = options[3:]
        even_cells = self.num_bins * CELLS_PER_BIN
        self.add_cells(NUM_CELLS if binning == "equal_mass" else even_cells)

    def batch_sums(self, y_true, y_pred, weight):
        """Fills the cells with confidences and correctness."""
        confidence = predictions.confidence(y_pred, self.from_logits)
        correct = predictions.correctness(y_true, y_pred)
        if self.binning == "equal_mass":
            cells = histogram.cells_towards_one(confidence, NUM_CELLS)
        else:
            cells = histogram.even_cells(
                confidence, self.num_bins, CELLS_PER_BIN
            )
        return self.fill(cells, confidence, correct, weight)

    def grid(self):
        """The cells of the state."""
        if self.binning == "equal_mass":
            return histogram.grid_towards_one(NUM_CELLS)
        return histogram.even_grid(self.num_cells)

    def value(self, sums):
        """The error of the bins that the cells make."""
        cells = Cells(*ops.unstack(sums, axis=-1))
        grid = self.grid()
        if self.binning == "equal_mass":
            of_bins, starts = bins.equal_mass_bins(
                cells, self.excess(cells), grid.width, self.num_bins
            )
        else:
            of_bins, starts = bins.equal_width_bins(
                cells, self.excess(cells), self.num_bins
            )
        if self.estimator == "label":
            powers = bins.label_error(
                cells, grid, starts, of_bins.accuracy, self.norm
            )
        else:
            powers = bins.bin_error(of_bins, self.norm, self.debias)
        return ops.sqrt(powers) if self.norm == 2 else powers

    def options(self):
        """The constructor's arguments beyond name and dtype."""
        return {
            "num_bins": self.num_bins,
            "norm": self.norm,
            "binning": self.binning,
            "estimator": self.estimator,
            "debias": self.debias,
            **super().options(),
        }
