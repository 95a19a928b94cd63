"""Streaming top-label errors: the expected calibration error and KS."""

import keras
from keras import ops

from caltrain_tf.metrics.binned import check_bins
from caltrain_tf.metrics.streaming import histogram
from caltrain_tf.metrics.streaming.base import StreamingMetric

# 0.8 MB of state. On outputs of real networks and on samples from calibrated
# ones, equal-mass errors are off by up to 1.4e-4, or 6e-4 with half the cells.
NUM_CELLS = 2**14
# Bins of equal width need several cells only for the label estimator.
CELLS_PER_BIN = 2**8


@keras.saving.register_keras_serializable("caltrain_tf")
class ExpectedCalibrationError(StreamingMetric):
    """`calibration_error` over a stream; see there for the options.

    The confidences are counted in 16,384 cells, which are narrower closer to 1.
    Bins of equal mass are made of these cells, and their error is within 2e-4
    of the exact value. Bins of equal width are exact up to rounding.

    Args:
        num_bins: Number of bins.
        norm: 1, 2 or `math.inf`.
        binning: `"equal_mass"`, or `"equal_width"` on [0, 1]. (What the losses
            call `binning` is called `estimator` here.)
        estimator: `"bin"` or `"label"`.
        debias: Whether to subtract the bias; for `norm=2, estimator="bin"`.
        from_logits: Whether `y_pred` holds logits.
        name: The metric's name.
        dtype: Data type of the metric; the state is float32.
        multi_label: Whether the columns are binary problems, to be pooled.
        ignore_class: The label of examples that are ignored.

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
        *,
        multi_label=False,
        ignore_class=None,
    ):
        options = check_bins(num_bins, norm, binning, estimator, debias)
        names = ("num_bins", "norm", "binning", "estimator", "debias")
        super().__init__(
            name,
            dtype,
            from_logits,
            multi_label,
            ignore_class,
            **dict(zip(names, options, strict=True)),
        )
        if self.binning == "equal_mass":
            self._grid = histogram.confidence_grid(NUM_CELLS)
        else:
            cells = 1 if self.estimator == "bin" else CELLS_PER_BIN
            self._grid = histogram.even_grid(self.num_bins * cells)
        self.add_sums(len(self._grid.centre), len(histogram.Cells._fields))

    def updated(self, state, batch):
        """Returns the state with the confidences of a batch added."""
        return _add_confidences(state, batch, self._grid, self._cells)

    def _cells(self, confidence):
        num_cells = len(self._grid.centre)
        if self.binning == "equal_mass":
            return histogram.confidence_cells(confidence, num_cells)
        return histogram.even_cells(
            confidence, self.num_bins, num_cells // self.num_bins
        )

    def value(self, sums):
        """Returns the error of the bins that are made of the cells."""
        cells = histogram.Cells.of_state(sums)
        make_bins = getattr(histogram, f"{self.binning}_bins")
        bins, starts = make_bins(cells, self._grid, self.num_bins)
        if self.estimator == "label":
            powers = histogram.label_error(
                cells, self._grid, starts, bins.accuracy, self.norm
            )
        else:
            powers = bins.error(self.norm, self.debias)
        return ops.sqrt(powers) if self.norm == 2 else powers


@keras.saving.register_keras_serializable("caltrain_tf")
class KSError(StreamingMetric):
    """`ks_error` over a stream; see there.

    Examples whose confidences share one of 16,384 cells enter together.

    Args:
        from_logits: Whether `y_pred` holds logits.
        name: The metric's name.
        dtype: Data type of the metric; the state is float32.
        multi_label: Whether the columns are binary problems, to be pooled.
        ignore_class: The label of examples that are ignored.

    Example:
        >>> import caltrain_tf as ct
        >>> metric = ct.metrics.KSError()
        >>> metric.update_state([0, 0], [[0.9, 0.1], [0.8, 0.2]])
        >>> metric.update_state([1, 0], [[0.3, 0.7], [0.4, 0.6]])
        >>> round(float(metric.result()), 4)
        0.15
    """

    def __init__(
        self,
        from_logits=False,
        name="ks_error",
        dtype=None,
        *,
        multi_label=False,
        ignore_class=None,
    ):
        super().__init__(name, dtype, from_logits, multi_label, ignore_class)
        self.add_sums(NUM_CELLS, len(histogram.Cells._fields))

    def updated(self, state, batch):
        """Returns the state with the confidences of a batch added."""
        return _add_confidences(
            state,
            batch,
            histogram.confidence_grid(NUM_CELLS),
            lambda values: histogram.confidence_cells(values, NUM_CELLS),
        )

    def value(self, sums):
        """Returns the largest cumulated difference."""
        cells = histogram.Cells.of_state(sums)
        excess = cells.excess(histogram.confidence_grid(NUM_CELLS))
        return ops.divide_no_nan(
            ops.max(ops.abs(histogram.running_sum(excess))),
            histogram.running_sum(cells.mass)[-1],
        )


def _add_confidences(state, batch, grid, cells_of):
    confidence = batch.confidence()
    correct = batch.correctness()
    cells = cells_of(confidence)
    terms = histogram.terms(
        confidence, correct, batch.sample_weight, cells, grid
    )
    return histogram.add_at(state, cells, terms)
