"""The marginal calibration error over a stream."""

import keras
import numpy as np
from keras import ops

from caltrain_tf.checks import check_count
from caltrain_tf.metrics.options import check_bins
from caltrain_tf.metrics.streaming import bins
from caltrain_tf.metrics.streaming import histogram
from caltrain_tf.metrics.streaming.cells import CellMetric
from caltrain_tf.metrics.streaming.cells import Cells
from caltrain_tf.ops import labels
from caltrain_tf.ops import predictions

# Of all classes together, but for the bounds of each.
MOST_CELLS = 2**18
FEWEST_CELLS_OF_A_CLASS = 2**9
MOST_CELLS_OF_A_CLASS = 2**16


@keras.saving.register_keras_serializable("caltrain_tf")
class MarginalCalibrationError(CellMetric):
    """`marginal_calibration_error` over a stream; see there for the options.

    The probabilities of every class are counted in cells that are narrower the
    closer they are to 0 or 1: 65,536 for 2 classes, 512 for 512 and more.

    Args:
        num_bins: Number of bins of each class.
        norm: 1, 2 or `math.inf`.
        binning: `"equal_mass"`, or `"equal_width"` on [0, 1].
        num_classes: Needed only where the metric is created in one place and
            first used inside a distribution strategy's replica; otherwise it
            is seen in the first batch.
        from_logits: Whether `y_pred` holds logits.
        name: The metric's name.
        dtype: Of the metric; the state is float32.

    Example:
        >>> import caltrain_tf as ct
        >>> metric = ct.metrics.MarginalCalibrationError(num_bins=2)
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
        num_classes=None,
        from_logits=False,
        name="marginal_ece",
        dtype=None,
    ):
        """Takes the options of `marginal_calibration_error`."""
        options = check_bins(num_bins, norm, binning)
        super().__init__(from_logits, name, dtype)
        self.num_bins, self.norm, self.binning = options[:3]
        self.num_classes = None
        if num_classes is not None:
            self.build_once(check_count("num_classes", num_classes, low=2))

    def build_once(self, num_classes):
        """Creates the state."""
        if self.num_classes is not None:
            if num_classes != self.num_classes:
                raise ValueError(
                    f"`y_pred` must have {self.num_classes} classes, as before."
                    f" Received: {num_classes} classes"
                )
            return
        self.num_classes = num_classes
        if self.binning == "equal_mass":
            cells = 2 ** ((MOST_CELLS // num_classes).bit_length() - 1)
            cells = max(cells, FEWEST_CELLS_OF_A_CLASS)
            self.cells_of_a_class = min(cells, MOST_CELLS_OF_A_CLASS)
        else:
            self.cells_of_a_class = self.num_bins
        self.add_cells(num_classes * self.cells_of_a_class)

    def batch_sums(self, y_true, y_pred, weight):
        """Fills the cells of each class with its probabilities."""
        probs = predictions.probabilities(y_pred, self.from_logits)
        outcome = labels.label_distribution(y_true, self.num_classes)
        valid = labels.nan_where_invalid(weight, y_true, self.num_classes)
        if self.binning == "equal_mass":
            cells = histogram.cells_towards_both_ends(
                probs, self.cells_of_a_class
            )
        else:
            cells = histogram.even_cells(probs, self.num_bins, 1)
        first = ops.arange(self.num_classes) * self.cells_of_a_class
        return self.fill(
            ops.reshape(cells + ops.cast(first, "int32"), (-1,)),
            ops.reshape(probs, (-1,)),
            ops.reshape(outcome, (-1,)),
            ops.reshape(valid[:, None] + ops.zeros_like(probs), (-1,)),
        )

    def grid(self):
        """The cells of the state: those of a class, once for each class."""
        grid = self._grid_of_a_class()
        return histogram.Grid(*(np.tile(x, self.num_classes) for x in grid))

    def result(self):
        """The metric of all examples since the last reset; 0 of none."""
        return super().result() if self.num_classes else ops.zeros(())

    def merge_state(self, metrics):
        """Adds the examples that other metrics of this kind have seen."""
        # One that saw no batch has nothing to add.
        metrics = [
            metric
            for metric in metrics
            if not self._has_options_of(metric) or metric.num_classes
        ]
        for metric in metrics:
            if self._has_options_of(metric):
                self.build_once(metric.num_classes)
        super().merge_state(metrics)

    def _has_options_of(self, metric):
        return type(metric) is type(self) and all(
            self.options()[name] == value
            for name, value in metric.options().items()
            if name != "num_classes"
        )

    def value(self, sums):
        """The mean over the classes."""
        cells = Cells(*ops.unstack(sums, axis=-1))
        shape = (self.num_classes, self.cells_of_a_class)
        excess = ops.reshape(self.excess(cells), shape)
        cells = Cells(*(ops.reshape(part, shape) for part in cells))
        if self.binning == "equal_mass":
            width = self._grid_of_a_class().width
            of_bins, _ = bins.equal_mass_bins(
                cells, excess, width, self.num_bins
            )
        else:
            of_bins, _ = bins.equal_width_bins(cells, excess, self.num_bins)
        powers = bins.bin_error(of_bins, self.norm)
        if self.norm == float("inf"):
            return ops.max(powers)
        mean = ops.mean(powers)
        return ops.sqrt(mean) if self.norm == 2 else mean

    def options(self):
        """The constructor's arguments beyond name and dtype."""
        return {
            "num_bins": self.num_bins,
            "norm": self.norm,
            "binning": self.binning,
            "num_classes": self.num_classes,
            **super().options(),
        }

    def _grid_of_a_class(self):
        if self.binning == "equal_mass":
            return histogram.grid_towards_both_ends(self.cells_of_a_class)
        return histogram.even_grid(self.num_bins)
