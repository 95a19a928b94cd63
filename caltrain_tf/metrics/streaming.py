"""Metrics for `model.compile` whose state is a fixed-size array of sums.

A stream cannot be sorted into bins of equal mass. It can be counted in cells so
narrow that it hardly matters where in its cell a probability lies, and bins can
be made of whole cells later. Of each cell four sums are kept: the mass, the
hits, the distances of the probabilities from the centre of the cell (which are
small numbers with small rounding errors), and the squared weights, from which
the effective number of examples follows.
"""

import math

import keras
import numpy as np
from keras import ops

from caltrain_tf import checks, inputs
from caltrain_tf.losses import soft_bins
from caltrain_tf.metrics import binned

# Cells of the confidences.
NUM_CELLS = 2**14
# Bins of equal width need several cells only for the label estimator.
CELLS_PER_BIN = 2**8
# Cells of all classes together, within the bounds per class. Errors of classes
# cancel, so that each class needs fewer cells if there are more classes.
MOST_CELLS = 2**16
FEWEST_CELLS_OF_A_CLASS = 2**6
MOST_CELLS_OF_A_CLASS = 2**14
# How far rounding may move the rank of an example.
RANK_ROUNDING = 0.01
# How far rounding may move a number of examples, relative to it.
WHOLE_ROUNDING = 1e-5
# The smallest normal float32: its logarithm is finite.
SMALLEST_NORMAL = 1.1754944e-38


class StreamingMetric(keras.metrics.Metric):
    """A metric whose state is an array of sums over the examples.

    A subclass defines what a batch adds (`batch_sums`) and the metric of the
    sums (`value`). By default, this is the weighted mean of `row_values`.

    The state also holds what rounding took from each sum (Kahan's summation): a
    plain float32 sum stops growing at 16,777,216, and TPUs and JAX have no
    float64 by default. Keras' callbacks read from `_direction` that lower is
    better.
    """

    _direction = "down"

    def __init__(
        self, name, dtype, from_logits, multi_label, ignore_class, **options
    ):
        super().__init__(name=name, dtype=dtype)
        if ignore_class is not None:
            ignore_class = checks.count("ignore_class", ignore_class, -(2**63))
        self._options = options | {
            "from_logits": checks.flag("from_logits", from_logits),
            "multi_label": checks.flag("multi_label", multi_label),
            "ignore_class": ignore_class,
        }
        for option, value in self._options.items():
            setattr(self, option, value)

    def add_sums(self, *shape):
        """Creates the state: sums of this shape, and what they have lost."""
        self.sums = self.add_variable(
            (2, *shape), "zeros", dtype="float32", name="sums"
        )

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Adds a batch.

        Args:
            y_true: Class ids `(...)` or label distributions `(..., classes)`.
            y_pred: Probabilities, or logits, `(..., classes)`; `(..., 1)` for
                class 1 of a binary problem. The mask that a Keras layer
                attached to it is applied.
            sample_weight: Weights, of the examples' shape `(...)` or of its
                first axes.
        """
        batch = inputs.standardize(
            y_true,
            y_pred,
            self.from_logits,
            self.multi_label,
            self.ignore_class,
            sample_weight,
        )
        # Where a compiled graph cannot raise, mistakes show as NaN.
        weight = inputs.nan_where_invalid(batch.sample_weight, batch)
        batch = batch._replace(sample_weight=weight)
        self.build_once(batch.num_classes)
        if batch.predictions.shape[0] != 0:
            self._add(self.batch_sums(batch))

    def build_once(self, num_classes):
        """Creates the state if it depends on the number of classes."""
        # AutoGraph warns about a function without a body.
        return None

    def batch_sums(self, batch):
        """Returns what an `inputs.Batch` adds to the sums."""
        weight = batch.sample_weight
        return ops.stack(
            [ops.sum(weight * self.row_values(batch)), ops.sum(weight)]
        )

    def row_values(self, batch):
        """Returns a value for each example, `(n,)`."""
        raise NotImplementedError

    def value(self, sums):
        """Returns the metric of the sums over all examples; 0 without any."""
        return ops.divide_no_nan(sums[0], sums[1])

    def result(self):
        """Returns the metric of all examples since the reset; 0 without any."""
        return self.value(ops.convert_to_tensor(self.sums)[0])

    def merge_state(self, metrics):
        """Adds the examples that other metrics of this kind have seen."""
        metrics = list(metrics)
        for metric in metrics:
            if type(metric) is not type(self) or (
                metric._options != self._options
            ):
                raise ValueError(
                    "`metrics` must hold metrics with the same options as this "
                    f"one, {self!r}. Received: {metric!r}"
                )
        for metric in metrics:
            self._add_state_of(metric)

    def _add_state_of(self, metric):
        sums, lost = ops.unstack(ops.convert_to_tensor(metric.sums), num=2)
        self._add(sums)
        self._add(-lost)

    def _add(self, values):
        sums, lost = ops.unstack(ops.convert_to_tensor(self.sums), num=2)
        values = values - lost
        total = sums + values
        self.sums.assign(ops.stack([total, (total - sums) - values]))

    def get_config(self):
        """Returns the arguments of the constructor."""
        return {**super().get_config(), **self._options}

    def __repr__(self):
        """Returns the call that makes such a metric."""
        options = self.get_config()
        del options["dtype"]
        listed = ", ".join(f"{key}={value!r}" for key, value in options.items())
        return f"{type(self).__name__}({listed})"


@keras.saving.register_keras_serializable("caltrain_tf")
class ExpectedCalibrationError(StreamingMetric):
    """`calibration_error` over a stream; see there for the options.

    The confidences are counted in 16,384 cells, which are narrower closer to 1.
    Bins of equal mass are made of whole cells: on the outputs of real networks
    their error is within 5e-4 of the exact value. With a few hundred examples
    it may be off by 5e-3, since an example that shares a cell with the edge of
    a bin is a larger part of it. Bins of equal width are exact up to rounding.

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
        options = binned.check_bins(num_bins, norm, binning, estimator, debias)
        names = ("num_bins", "norm", "binning", "estimator", "debias")
        super().__init__(
            name,
            dtype,
            from_logits,
            multi_label,
            ignore_class,
            **dict(zip(names, options, strict=True)),
        )
        self._cells_per_bin = 1 if self.estimator == "bin" else CELLS_PER_BIN
        self._centres = confidence_centres()
        if self.binning == "equal_width":
            self._centres = even_centres(self.num_bins * self._cells_per_bin)
        self.add_sums(len(self._centres), 4)

    def batch_sums(self, batch):
        """Returns what the confidences of a batch add to each cell."""
        confidence = batch.confidence()
        if self.binning == "equal_mass":
            cells = confidence_cells(confidence)
        else:
            cells = even_cells(confidence, self.num_bins, self._cells_per_bin)
        return cell_sums(
            confidence - ops.take(self._centres, cells),
            batch.correctness(),
            batch.sample_weight,
            cells,
            len(self._centres),
        )

    def value(self, sums):
        """Returns the error of the bins that are made of the cells."""
        sums = with_excess(sums, self._centres)
        if self.binning == "equal_mass":
            index = equal_mass_bins(sums[None], self.num_bins)[0]
        else:
            index = np.arange(len(self._centres)) // self._cells_per_bin
            index = ops.convert_to_tensor(index, dtype="int32")
        bins = ops.segment_sum(sums, index, num_segments=self.num_bins)
        if self.estimator == "bin":
            return root(bin_error(bins, self.norm, self.debias), self.norm)
        # All examples of a cell are taken to have its mean confidence.
        mass, hits, excess, _ = ops.unstack(sums, num=4, axis=-1)
        accuracy = ops.divide_no_nan(bins[:, 1], bins[:, 0])
        gap = ops.divide_no_nan(hits + excess, mass) - ops.take(accuracy, index)
        return root(power_mean(gap, mass, self.norm), self.norm)


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
        self.add_sums(NUM_CELLS, 4)

    def batch_sums(self, batch):
        """Returns what the confidences of a batch add to each cell."""
        confidence = batch.confidence()
        cells = confidence_cells(confidence)
        return cell_sums(
            confidence - ops.take(confidence_centres(), cells),
            batch.correctness(),
            batch.sample_weight,
            cells,
            NUM_CELLS,
        )

    def value(self, sums):
        """Returns the largest cumulated excess."""
        sums = with_excess(sums, confidence_centres())
        largest = ops.max(ops.abs(ops.cumsum(sums[:, 2])))
        return ops.divide_no_nan(largest, ops.sum(sums[:, 0]))


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
        reduce: `"mean"`, or `"sum"` over the classes under the root.

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
        reduce="mean",
    ):
        num_bins, norm, binning, *_ = binned.check_bins(num_bins, norm, binning)
        super().__init__(
            name,
            dtype,
            from_logits,
            multi_label,
            ignore_class,
            num_bins=num_bins,
            norm=norm,
            binning=binning,
            reduce=checks.choice("reduce", reduce, binned.REDUCTIONS),
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
        self._centres = even_centres(self.num_bins)
        if self.binning == "equal_mass":
            cells = max(MOST_CELLS // num_classes, FEWEST_CELLS_OF_A_CLASS)
            cells = min(cells, MOST_CELLS_OF_A_CLASS)
            self._centres = probability_centres(cells)
        self.add_sums(num_classes * len(self._centres), 4)

    def batch_sums(self, batch):
        """Returns what the probabilities of a batch add to each cell."""
        probs = batch.probabilities()
        if self.binning == "equal_mass":
            cells = probability_cells(probs, len(self._centres))
        else:
            cells = even_cells(probs, self.num_bins, 1)
        first = ops.arange(self.num_classes, dtype="int32") * len(self._centres)
        arrays = (
            probs - ops.take(self._centres, cells),
            batch.label_distribution(),
            ops.ones_like(probs) * batch.sample_weight[:, None],
            cells + first,
        )
        return cell_sums(
            *(ops.reshape(array, (-1,)) for array in arrays),
            self.num_classes * len(self._centres),
        )

    def value(self, sums):
        """Returns the error over all classes."""
        bins = ops.reshape(sums, (self.num_classes, len(self._centres), 4))
        bins = with_excess(bins, self._centres)
        if self.binning == "equal_mass":
            index = equal_mass_bins(bins, self.num_bins)
            first = ops.arange(self.num_classes, dtype="int32") * self.num_bins
            bins = ops.segment_sum(
                ops.reshape(bins, (-1, 4)),
                ops.reshape(index + first[:, None], (-1,)),
                num_segments=self.num_classes * self.num_bins,
            )
            bins = ops.reshape(bins, (self.num_classes, self.num_bins, 4))
        errors = bin_error(bins, self.norm)
        if self.norm == math.inf:
            return ops.max(errors)
        total = ops.mean(errors) if self.reduce == "mean" else ops.sum(errors)
        return root(total, self.norm)

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


@keras.saving.register_keras_serializable("caltrain_tf")
class SoftBinnedECE(StreamingMetric):
    """`ct.losses.sb_ece` of all examples together, over a stream.

    The loss of a batch depends on which examples are in it; this metric is the
    value for all examples. It needs only a few sums for each bin; with
    `binning="label"`, this is possible only for `norm=2`.

    Args:
        num_bins: Number of bins, of equal width on [0, 1].
        temperature: Softness of the bins.
        norm: The exponent, at least 1; 2 with `binning="label"`.
        binning: `"label"` or `"bin"`, as in the loss. (The hard-binned metrics
            call it `estimator`; their `binning` says where bins begin.)
        root: Whether to take the root at the end.
        from_logits: Whether `y_pred` holds logits.
        name: The metric's name.
        dtype: Data type of the metric; the state is float32.
        multi_label: Whether the columns are binary problems, to be pooled.
        ignore_class: The label of examples that are ignored.

    Example:
        >>> import caltrain_tf as ct
        >>> metric = ct.metrics.SoftBinnedECE()
        >>> metric.update_state([0], [[0.9, 0.1]])
        >>> metric.update_state([1, 1], [[0.7, 0.3], [0.4, 0.6]])
        >>> round(float(metric.result()), 4)
        0.2652
    """

    def __init__(
        self,
        num_bins=15,
        temperature=0.01,
        norm=2,
        binning="label",
        root=True,
        from_logits=False,
        name="sb_ece",
        dtype=None,
        *,
        multi_label=False,
        ignore_class=None,
    ):
        norm = checks.number("norm", norm, low=1, closed=True)
        binning = checks.choice("binning", binning, binned.ESTIMATORS)
        if binning == "label" and norm != 2:
            raise ValueError(
                '`norm` must be 2 with `binning="label"`: other powers are no '
                f"sums over a stream. Received: norm={norm!r}"
            )
        super().__init__(
            name,
            dtype,
            from_logits,
            multi_label,
            ignore_class,
            num_bins=checks.count("num_bins", num_bins),
            temperature=checks.number("temperature", temperature, low=0),
            norm=norm,
            binning=binning,
            root=checks.flag("root", root),
        )
        # For each bin: mass, excess, and two moments of the distance of the
        # confidences from its centre, since small numbers have small rounding
        # errors; then the number of examples, which is the same for all bins.
        self.add_sums(5, self.num_bins)

    def batch_sums(self, batch):
        """Returns what a batch adds to each bin."""
        confidence = batch.confidence()
        membership = soft_bins.soft_membership(
            confidence, self.num_bins, self.temperature
        )
        membership = membership * batch.sample_weight[:, None]
        excess = confidence - batch.correctness()
        distance = confidence[:, None] - self._centres()
        counts = ops.cast(batch.sample_weight != 0, "float32")
        values = [
            membership,
            membership * excess[:, None],
            membership * distance,
            membership * ops.square(distance),
            ops.ones_like(membership) * counts[:, None],
        ]
        return ops.stack([ops.sum(value, axis=0) for value in values])

    def value(self, sums):
        """Returns the error (equations 11 and 12 of the paper)."""
        mass, excess, distance, square, count = ops.unstack(sums, num=5)
        total = ops.sum(mass)
        # As in the loss, whose weights have a mean of 1.
        smallest = ops.divide_no_nan(soft_bins.SMALLEST_MASS * total, count)
        safe_mass = ops.maximum(mass, smallest)
        scale = 1.0
        if self.binning == "bin":
            gap = ops.divide_no_nan(ops.abs(excess), safe_mass)
            # A high power of a small gap would underflow.
            scale = ops.max(gap)
            powers = ops.power(ops.divide_no_nan(gap, scale), self.norm)
        else:
            # The mean of (accuracy - c)^2 is (accuracy - mean)^2 + variance.
            distance = ops.divide_no_nan(distance, mass)
            variance = ops.divide_no_nan(square, mass) - ops.square(distance)
            confidence = self._centres() + distance
            hits = mass * confidence - excess
            gap = ops.divide_no_nan(hits, safe_mass) - confidence
            powers = ops.square(gap) + ops.maximum(variance, 0.0)
        mean = ops.divide_no_nan(ops.sum(mass * powers), total)
        if self.root:
            return ops.power(mean, 1.0 / self.norm) * scale
        return mean * scale**self.norm

    def _centres(self):
        centres = ops.arange(self.num_bins, dtype="float32") + 0.5
        return centres / self.num_bins


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
        distance = batch.probabilities() - batch.label_distribution()
        return ops.sum(ops.square(distance), axis=-1)


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
        logs = batch.log_probabilities()
        return -ops.sum(batch.label_distribution() * logs, axis=-1)


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
        logs = batch.log_probabilities(smallest=SMALLEST_NORMAL)
        return -ops.sum(batch.probabilities() * logs, axis=-1)


def confidence_cells(values):
    """The cell of each confidence, int32: narrower the closer to 1."""
    position = 1.0 - ops.sqrt(ops.sqrt(ops.maximum(1.0 - values, 0.0)))
    return _index(position * NUM_CELLS, NUM_CELLS)


def confidence_centres():
    """The centres of these cells, float32 `(cells,)`."""
    return (1 - (1 - even_centres(NUM_CELLS)) ** 4).astype("float32")


def probability_cells(values, num_cells):
    """The cell of each probability: narrower the closer to 0 or 1."""
    smaller = ops.maximum(ops.minimum(values, 1.0 - values), 0.0)
    position = 0.5 * ops.sqrt(ops.sqrt(2.0 * smaller))
    position = ops.where(values < 0.5, position, 1.0 - position)
    return _index(position * num_cells, num_cells)


def probability_centres(num_cells):
    """The centres of these cells, float32 `(cells,)`."""
    position = even_centres(num_cells)
    smaller = (2 * np.minimum(position, 1 - position)) ** 4 / 2
    centres = np.where(position < 0.5, smaller, 1 - smaller)
    return centres.astype("float32")


def even_cells(values, num_bins, cells_per_bin):
    """The cell of each value; no cell crosses the edge of a bin.

    An edge belongs to the bin above it. A float32 is at least j/num_bins if it
    is at least the smallest float32 that is not below j/num_bins.
    """
    exact = np.arange(1, num_bins) / num_bins
    edges = exact.astype("float32")
    edges = np.where(edges < exact, np.nextafter(edges, np.float32(2)), edges)
    bins = ops.zeros_like(values, dtype="int32")
    for edge in edges.tolist():
        bins = bins + ops.cast(values >= edge, "int32")
    within = values * num_bins - ops.cast(bins, "float32")
    return bins * cells_per_bin + _index(within * cells_per_bin, cells_per_bin)


def even_centres(num_cells):
    """The centres of cells of equal width on [0, 1], float32 `(cells,)`."""
    return ((np.arange(num_cells) + 0.5) / num_cells).astype("float32")


def _index(position, num_cells):
    # NaN goes into the first cell, whose sums it makes NaN.
    position = ops.where(ops.isnan(position), 0.0, position)
    return ops.cast(ops.clip(position, 0, num_cells - 1), "int32")


def cell_sums(distance, outcome, weight, cells, num_cells):
    """Mass, hits, distance and squared weights of each cell, `(cells, 4)`."""
    terms = weight, weight * outcome, weight * distance, weight * weight
    terms = ops.stack(terms, axis=-1)
    return ops.segment_sum(terms, cells, num_segments=num_cells)


def with_excess(sums, centres):
    """Cells `(..., cells, 4)` with summed probability minus hits as third."""
    mass, hits, distance, squared_weight = ops.unstack(sums, num=4, axis=-1)
    # Not confidence minus hits: for a confident network both are close to the
    # mass, and only their small differences from it matter.
    excess = (mass - hits) - mass * (1 - centres) + distance
    return ops.stack([mass, hits, excess, squared_weight], axis=-1)


def equal_mass_bins(sums, num_bins):
    """The bin of each cell, int32 `(classes, cells)`, as in `inner_edges`.

    A bin begins with the cell of its first example.

    Args:
        sums: `(classes, cells, 4)`; all classes have the same mass.
        num_bins: Number of bins.
    """
    mass, squared_weight = sums[..., 0], sums[..., 3]
    up_to_here = ops.cumsum(mass, axis=-1)
    total = up_to_here[0, -1]
    # The smallest weight is one example: 1, unless there are weights. If it
    # shares its cell with larger ones, ranks are off by less than an example.
    unit = ops.min(
        ops.where(mass > 0, ops.divide_no_nan(squared_weight, mass), math.inf)
    )
    examples = ops.divide_no_nan(total, unit)
    # Equal weights are a whole number of examples, up to rounding.
    whole = ops.round(examples)
    is_whole = ops.abs(examples - whole) < WHOLE_ROUNDING * whole
    examples = ops.where(is_whole, whole, examples)
    ranks = ops.arange(1, num_bins, dtype="float32") / num_bins
    ranks = ops.minimum(ops.round(ranks * examples), examples - 1.0)
    ranks = (ranks + RANK_ROUNDING) * unit
    above = ops.expand_dims(up_to_here, -1) > ranks
    return ops.sum(ops.cast(above, "int32"), axis=-1)


def bin_error(bins, norm, debias=False):
    """sum_b w_b |conf_b - acc_b|^norm, or the largest gap, `(...)`.

    Args:
        bins: Sums of the cells of each bin, `(..., bins, 4)`.
        norm: 1, 2 or inf.
        debias: Whether to subtract the expected square of a calibrated bin.
    """
    mass, hits, excess, squared_weight = ops.unstack(bins, num=4, axis=-1)
    gap = ops.divide_no_nan(excess, mass)
    if not debias:
        return power_mean(gap, mass, norm)
    examples = mass * ops.divide_no_nan(mass, squared_weight)
    known = examples > binned.FEWEST_EXAMPLES
    accuracy = ops.divide_no_nan(hits, mass)
    bias = accuracy * (1.0 - accuracy) / ops.where(known, examples - 1.0, 1.0)
    powers = ops.where(known, ops.square(gap) - bias, 0.0)
    mean = ops.divide_no_nan(ops.sum(mass * powers), ops.sum(mass))
    return ops.maximum(mean, 0.0)


def power_mean(gap, mass, norm):
    """Mean of |gap|^norm over the last axis, or the largest |gap|."""
    gap = ops.where(mass == 0, 0.0, ops.abs(gap))
    if norm == math.inf:
        return ops.max(gap, axis=-1)
    powers = gap if norm == 1 else ops.square(gap)
    return ops.divide_no_nan(
        ops.sum(mass * powers, axis=-1), ops.sum(mass, axis=-1)
    )


def root(powers, norm):
    """The root of a mean of powers."""
    return ops.sqrt(powers) if norm == 2 else powers
