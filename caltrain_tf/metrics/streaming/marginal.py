"""The streaming marginal calibration error."""

import keras
from keras import ops

from caltrain_tf import checks
from caltrain_tf.metrics.binned import check_bins
from caltrain_tf.metrics.streaming import histogram
from caltrain_tf.metrics.streaming.base import StreamingMetric

# Cells of all classes together, within the bounds per class. Errors of classes
# cancel, so that each class needs fewer cells if there are more classes.
MOST_CELLS = 2**16
FEWEST_CELLS_OF_A_CLASS = 2**6
MOST_CELLS_OF_A_CLASS = 2**14


@keras.saving.register_keras_serializable("caltrain_tf")
class MarginalCalibrationError(StreamingMetric):
    """`marginal_calibration_error` over a stream; see there for the options.

    The probabilities of every class are counted in cells that are narrower the
    closer they are to 0 or 1: 16,384 for 2 classes, 64 for 1,000.

    Args:
        num_bins: Number of bins of each class.
        norm: 1, 2 or `math.inf`.
        binning: `"equal_mass"`, or `"equal_width"` on [0, 1].
        num_classes: Needed only if the metric is created outside and first used
            inside a replica of a distribution strategy; otherwise it is taken
            from the first batch. Binary problems have 2.
        from_logits: Whether `y_pred` holds logits.
        name: The metric's name.
        dtype: Data type of the metric; the state is float32.
        multi_label: Whether the columns are binary problems, to be pooled.
        ignore_class: The label of examples that are ignored.

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
        *,
        multi_label=False,
        ignore_class=None,
    ):
        num_bins, norm, binning, *_ = check_bins(num_bins, norm, binning)
        super().__init__(
            name,
            dtype,
            from_logits,
            multi_label,
            ignore_class,
            num_bins=num_bins,
            norm=norm,
            binning=binning,
        )
        self.num_classes = None
        if num_classes is not None:
            self.build_once(checks.count("num_classes", num_classes, low=2))

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
            cells = min(cells, MOST_CELLS_OF_A_CLASS)
            self._grid = histogram.probability_grid(cells)
        else:
            self._grid = histogram.even_grid(self.num_bins)
        self.add_sums(
            num_classes * len(self._grid.centre), len(histogram.Cells._fields)
        )

    def updated(self, state, batch):
        """Returns the state with the probabilities of a batch added."""
        probs = batch.probabilities()
        outcome = batch.label_distribution()
        num_cells = len(self._grid.centre)
        if self.binning == "equal_mass":
            cells = histogram.probability_cells(probs, num_cells)
        else:
            cells = histogram.even_cells(probs, self.num_bins, 1)
        first = ops.arange(self.num_classes, dtype="int32") * num_cells
        weight = ops.expand_dims(batch.sample_weight, -1)
        values = (probs, outcome, weight * ops.ones_like(probs), cells + first)
        values, outcome, weight, cells = (
            ops.reshape(array, (-1,)) for array in values
        )
        terms = histogram.terms(values, outcome, weight, cells, self._grid)
        return histogram.add_at(state, cells, terms)

    def value(self, sums):
        """Returns the error, averaged over the classes."""
        shape = (self.num_classes, len(self._grid.centre))
        cells = histogram.Cells.of_state(sums, shape)
        make_bins = getattr(histogram, f"{self.binning}_bins")
        bins, _ = make_bins(cells, self._grid, self.num_bins)
        powers = bins.error(self.norm)
        if self.norm == float("inf"):
            return ops.max(powers)
        mean = ops.mean(powers)
        return ops.sqrt(mean) if self.norm == 2 else mean

    def result(self):
        """Returns the metric of all examples since the reset; 0 without any."""
        return super().result() if self.num_classes else ops.zeros(())

    def get_config(self):
        """Returns the arguments of the constructor."""
        return {**super().get_config(), "num_classes": self.num_classes}

    def _add_state_of(self, metric):
        # A metric that has seen no batch has nothing to add.
        if metric.num_classes is not None:
            self.build_once(metric.num_classes)
            super()._add_state_of(metric)
