"""Metrics for `model.compile` whose state is a fixed-size array of sums."""

import math

import keras
import numpy as np
from keras import ops

from caltrain_tf import checks, inputs
from caltrain_tf.losses import likelihood, soft_bins
from caltrain_tf.metrics import binned

# Cells of the confidences. Keras computes the result in every training step.
NUM_CELLS = 2**12
# Cells of all classes together, whose errors cancel, and the fewest of one.
MOST_CELLS = 2**16
FEWEST_CELLS = 2**6
# How far rounding may move the rank of an example.
RANK_ROUNDING = 0.01


class StreamingMetric(keras.metrics.Metric):
    """A metric whose state is an array of sums over the examples.

    A subclass defines what a batch adds (`batch_sums`) and the metric of the
    sums (`result`), or a `value` of which the metric is the mean.

    The state also holds what rounding took from each sum (Kahan's summation): a
    plain float32 sum stops growing at 16,777,216, and TPUs and JAX have no
    float64 by default.
    """

    _direction = "down"  # For Keras' callbacks: lower is better.
    default_name = None
    shape = (2,)  # Of the sums; None if it depends on the options.

    def __init__(
        self,
        from_logits=False,
        name=None,
        dtype=None,
        multi_label=False,
        ignore_class=None,
    ):
        super().__init__(name=name or self.default_name, dtype=dtype)
        self._options = {}
        self.set_options(
            from_logits=checks.flag("from_logits", from_logits),
            multi_label=checks.flag("multi_label", multi_label),
            ignore_class=checks.ignore_class(ignore_class),
        )
        self.sums = None
        if self.shape is not None:
            self.add_sums(*self.shape)

    def set_options(self, **options):
        """Keeps options as attributes and for `get_config`."""
        self._options |= options
        vars(self).update(options)

    def add_sums(self, *shape):
        """Creates the state: sums, and what rounding took from them."""
        self.sums, self.lost = (
            self.add_variable(shape, "zeros", dtype="float32", name=name)
            for name in ("sums", "lost")
        )

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Adds a batch.

        Args:
            y_true: Class ids `(...)` or label distributions `(..., classes)`.
            y_pred: Probabilities, or logits, `(..., classes)`, or `(..., 1)`.
                The mask that a Keras layer attached to them is applied.
            sample_weight: Weights of shape `(...)`, or of its first axes.
        """
        shared = self.from_logits, self.multi_label, self.ignore_class
        batch = inputs.standardize(y_true, y_pred, *shared, sample_weight)
        self._add(self.batch_sums(batch))

    def batch_sums(self, batch):
        """Returns what an `inputs.Batch` adds to the sums."""
        weight = batch.sample_weight
        values = ops.reshape(self.value(batch, None), (-1,))
        return ops.stack([ops.sum(weight * values), ops.sum(weight)])

    def result(self):
        """Returns the metric of all examples since the reset; 0 without any."""
        return ops.divide_no_nan(self.sums[0], self.sums[1])

    def merge_state(self, metrics):
        """Adds the examples that other metrics of this kind have seen."""
        for metric in metrics:
            is_other_kind = metric.__class__ != self.__class__
            if is_other_kind or metric._options != self._options:
                raise ValueError(
                    "`metrics` must hold metrics with the same options, "
                    f"{self._options}. Received: {metric.get_config()}"
                )
            if metric.sums is not None:  # It has seen a batch.
                if hasattr(self, "num_classes"):
                    self.build_once(metric.num_classes)
                self._add(metric.sums.value)
                self._add(-metric.lost.value)

    def _add(self, values):
        values = values - self.lost
        total = self.sums + values
        self.lost.assign((total - self.sums) - values)
        self.sums.assign(total)

    def get_config(self):
        """Returns the arguments of the constructor."""
        return {**super().get_config(), **self._options}


@keras.saving.register_keras_serializable("caltrain_tf")
class BrierScore(StreamingMetric):
    """`brier_score` over a stream; see there.

    Args:
        from_logits: Whether `y_pred` holds logits.
        name: The metric's name; `"brier"` by default.
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

    default_name = "brier"
    value = staticmethod(likelihood.mse)


@keras.saving.register_keras_serializable("caltrain_tf")
class NegativeLogLikelihood(StreamingMetric):
    """`negative_log_likelihood` over a stream; see there.

    Args:
        from_logits, name, dtype, multi_label, ignore_class: As in `BrierScore`.
            The default name is `"nll"`.

    Example:
        >>> import caltrain_tf as ct
        >>> metric = ct.metrics.NegativeLogLikelihood()
        >>> round(float(metric([0, 0], [[0.9, 0.1], [0.4, 0.6]])), 4)
        0.5108
    """

    default_name = "nll"
    value = staticmethod(likelihood.nll)


@keras.saving.register_keras_serializable("caltrain_tf")
class AverageUncertainty(StreamingMetric):
    """`average_uncertainty` over a stream; see there.

    Args:
        from_logits, name, dtype, multi_label, ignore_class: As in `BrierScore`.
            The default name is `"average_uncertainty"`.

    Example:
        >>> import caltrain_tf as ct
        >>> metric = ct.metrics.AverageUncertainty()
        >>> round(float(metric([0, 0], [[0.5, 0.5], [1.0, 0.0]])), 4)
        0.3466
    """

    default_name = "average_uncertainty"

    def value(self, batch, _):
        """Entropies in nats."""
        # The logarithm of the smallest normal number is finite.
        logs = batch.log_probabilities(float(np.finfo("float32").tiny))
        return -ops.sum(batch.probabilities() * logs, axis=-1)


class CellMetric(StreamingMetric):
    """A metric of probabilities that are counted in cells.

    Each column of probabilities `(n, columns)`, the confidence or all classes,
    has cells of its own: bins of equal width, or cells so narrow that bins of
    equal mass can be made of whole ones later. Of each cell four sums are kept:
    the mass, the hits, the distances of the probabilities from the centre of
    the cell, which have small rounding errors, and the squared weights, from
    which the effective number of examples follows.
    """

    binning, debias, reduce = "equal_mass", False, "mean"
    shape = None

    def add_cells(self, num_columns):
        """Creates the sums of the cells, `(cells, columns, 4)`."""
        cells = min(max(MOST_CELLS // num_columns, FEWEST_CELLS), NUM_CELLS)
        is_narrow = self.binning == "equal_mass"
        self.add_sums(cells if is_narrow else self.num_bins, num_columns, 4)

    def columns(self, batch):
        """Probabilities, and whether they came true, `(n, columns)`."""
        return batch.confidence()[:, None], batch.correctness()[:, None]

    def batch_sums(self, batch):
        """Returns what the probabilities of a batch add to each cell."""
        values, outcomes = self.columns(batch)
        num_cells, centres = self.sums.shape[0], self.centres()
        is_narrow = self.binning == "equal_mass"
        cells = (narrow_cells if is_narrow else even_cells)(values, num_cells)
        weight = ops.ones_like(values) * batch.sample_weight[:, None]
        distance = values - ops.take(centres, cells)
        terms = weight, weight * outcomes, weight * distance, weight * weight
        return sum_by(ops.stack(terms, axis=-1), cells, num_cells)

    def centres(self):
        """The centres of the cells, float32 `(cells,)`."""
        position = even_centres(self.sums.shape[0])
        if self.binning == "equal_width":
            return position
        smaller = (2 * np.minimum(position, 1 - position)) ** 4 / 2
        return np.where(position < 0.5, smaller, 1 - smaller)

    def cells(self):
        """Mass, hits, excess of probabilities over hits, squared weights."""
        sums = ops.convert_to_tensor(self.sums)
        mass, hits, distance, squares = ops.unstack(sums, num=4, axis=-1)
        excess = mass * self.centres()[:, None] + distance - hits
        return ops.stack([mass, hits, excess, squares], axis=-1)

    def result(self):
        """Returns the metric of all examples since the reset; 0 without any."""
        if self.sums is None:
            return ops.zeros(())
        bins = self.cells()
        if self.binning == "equal_mass":
            index = equal_mass_bins(bins, self.num_bins)
            bins = sum_by(bins, index, self.num_bins)
        mass, hits, excess, squares = ops.unstack(bins, num=4, axis=-1)
        gap = ops.abs(ops.divide_no_nan(excess, mass))
        if self.norm == math.inf:
            return ops.max(gap)
        powers = gap if self.norm == 1 else ops.square(gap)
        if self.debias:
            accuracy = ops.divide_no_nan(hits, mass)
            examples = mass * ops.divide_no_nan(mass, squares)
            known = examples > binned.FEWEST_EXAMPLES
            bias = accuracy * (1.0 - accuracy)
            bias = bias / ops.where(known, examples - 1.0, 1.0)
            powers = ops.where(known, powers - bias, 0.0)
        # All columns have the same mass.
        total = ops.sum(mass if self.reduce == "mean" else mass[:, 0])
        error = ops.divide_no_nan(ops.sum(mass * powers), total)
        error = ops.maximum(error, 0.0)
        return ops.sqrt(error) if self.norm == 2 else error


@keras.saving.register_keras_serializable("caltrain_tf")
class ExpectedCalibrationError(CellMetric):
    """`calibration_error` over a stream; see there for the options.

    Bins of equal mass are made of 4,096 cells, which are narrower closer to 0
    and 1. On the outputs of real networks their error is within 5e-4 of the
    exact value; with a few hundred examples it may be off by 1e-2. Bins of
    equal width are exact up to rounding.

    Args:
        num_bins, norm, binning, debias: As in `calibration_error`.
        from_logits, name, dtype, multi_label, ignore_class: As in `BrierScore`.

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
        debias=False,
        from_logits=False,
        name="ece",
        dtype=None,
        *,
        multi_label=False,
        ignore_class=None,
    ):
        super().__init__(from_logits, name, dtype, multi_label, ignore_class)
        self.set_options(
            **binned.check_bins(num_bins, norm, binning, debias=debias),
            debias=checks.flag("debias", debias),
        )
        self.add_cells(1)


@keras.saving.register_keras_serializable("caltrain_tf")
class MarginalCalibrationError(CellMetric):
    """`marginal_calibration_error` over a stream; see there for the options.

    Bins of equal mass are made of 4,096 cells of a class for up to 16 classes,
    and of 64 for 1,000.

    Args:
        num_bins, norm, binning, reduce: As in `marginal_calibration_error`.
        num_classes: Needed only if the first batch comes inside of a replica of
            a distribution strategy. Binary problems have 2.
        from_logits, name, dtype, multi_label, ignore_class: As in `BrierScore`.

    Example:
        >>> import caltrain_tf as ct
        >>> metric = ct.metrics.MarginalCalibrationError(num_bins=2)
        >>> metric.update_state([0, 0], [[0.9, 0.1], [0.8, 0.2]])
        >>> round(float(metric([1, 0], [[0.3, 0.7], [0.4, 0.6]])), 4)
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
        super().__init__(from_logits, name, dtype, multi_label, ignore_class)
        self.set_options(
            **binned.check_bins(num_bins, norm, binning),
            reduce=checks.choice("reduce", reduce, binned.REDUCTIONS),
        )
        self.num_classes = None
        if num_classes is not None:
            self.build_once(checks.count("num_classes", num_classes, low=2))

    def build_once(self, num_classes):
        """Creates the state, or checks the number of classes."""
        if self.num_classes is None:
            self.num_classes = num_classes
            self.add_cells(num_classes)
        if num_classes != self.num_classes:
            raise ValueError(
                f"`y_pred` must have {self.num_classes} classes, as before. "
                f"Received: {num_classes} classes"
            )

    def columns(self, batch):
        """All probabilities and labels."""
        self.build_once(batch.num_classes)
        return batch.probabilities(), batch.label_distribution()

    def get_config(self):
        """Returns the arguments of the constructor."""
        return {**super().get_config(), "num_classes": self.num_classes}


@keras.saving.register_keras_serializable("caltrain_tf")
class KSError(CellMetric):
    """`ks_error` over a stream; see there.

    Examples whose confidences share one of 4,096 cells enter together.

    Args:
        from_logits, name, dtype, multi_label, ignore_class: As in `BrierScore`.

    Example:
        >>> import caltrain_tf as ct
        >>> metric = ct.metrics.KSError()
        >>> metric.update_state([0, 0], [[0.9, 0.1], [0.8, 0.2]])
        >>> round(float(metric([1, 0], [[0.3, 0.7], [0.4, 0.6]])), 4)
        0.15
    """

    default_name = "ks_error"
    shape = (NUM_CELLS, 1, 4)

    def result(self):
        """Returns the metric of all examples since the reset; 0 without any."""
        mass, _, excess, _ = ops.unstack(self.cells()[:, 0], num=4, axis=-1)
        largest = ops.max(ops.abs(ops.cumsum(excess)))
        return ops.divide_no_nan(largest, ops.sum(mass))


@keras.saving.register_keras_serializable("caltrain_tf")
class SoftBinnedECE(StreamingMetric):
    """`ct.losses.sb_ece` with `norm=2` of all examples, over a stream.

    The mean loss of batches depends on how the examples are batched; this
    metric does not.

    Args:
        num_bins, temperature, binning, root: As in the loss.
        from_logits, name, dtype, multi_label, ignore_class: As in `BrierScore`.

    Example:
        >>> import caltrain_tf as ct
        >>> metric = ct.metrics.SoftBinnedECE()
        >>> metric.update_state([0], [[0.9, 0.1]])
        >>> round(float(metric([1, 1], [[0.7, 0.3], [0.4, 0.6]])), 4)
        0.2652
    """

    shape = None

    def __init__(
        self,
        num_bins=15,
        temperature=0.01,
        binning="label",
        root=True,
        from_logits=False,
        name="sb_ece",
        dtype=None,
        *,
        multi_label=False,
        ignore_class=None,
    ):
        super().__init__(from_logits, name, dtype, multi_label, ignore_class)
        self.set_options(
            num_bins=checks.count("num_bins", num_bins),
            temperature=checks.number("temperature", temperature, low=0),
            binning=checks.choice("binning", binning, binned.ESTIMATORS),
            root=checks.flag("root", root),
        )
        self.add_sums(5, self.num_bins)

    def batch_sums(self, batch):
        """Returns mass, hits, moments of the confidence, number of examples."""
        confidence, bins = batch.confidence(), (self.num_bins, self.temperature)
        membership = soft_bins.soft_membership(confidence, *bins)
        membership = batch.sample_weight[:, None] * membership
        correct = batch.correctness()[:, None]
        # Moments about the centre of the bin have small rounding errors.
        distance = confidence[:, None] - even_centres(self.num_bins)
        terms = 1.0, correct, distance, ops.square(distance)
        sums = [ops.sum(membership * x, axis=0) for x in terms]
        count = ops.sum(ops.cast(batch.sample_weight != 0, "float32"))
        return ops.stack([*sums, count * ops.ones_like(sums[0])])

    def result(self):
        """Returns the metric of all examples since the reset; 0 without any."""
        sums = ops.convert_to_tensor(self.sums)
        mass, hits, distance, square, count = ops.unstack(sums, num=5)
        # As in the loss, whose weights have a mean of 1.
        smallest = soft_bins.SMALLEST_MASS * ops.sum(mass)
        safe_mass = ops.maximum(mass, ops.divide_no_nan(smallest, count))
        distance = ops.divide_no_nan(distance, mass)
        confidence = distance + even_centres(self.num_bins)
        accuracy = ops.divide_no_nan(hits, safe_mass)
        if self.binning == "label":
            # The mean of (accuracy - c)^2 is (accuracy - mean)^2 + variance.
            variance = ops.divide_no_nan(square, mass) - ops.square(distance)
            variance = ops.maximum(variance, 0.0)
            powers = ops.square(accuracy - confidence) + variance
        else:
            confidence = ops.divide_no_nan(mass * confidence, safe_mass)
            powers = ops.square(accuracy - confidence)
        mean = ops.divide_no_nan(ops.sum(mass * powers), ops.sum(mass))
        return ops.sqrt(mean) if self.root else mean


def even_centres(num_cells):
    """The centres of cells of equal width on [0, 1], float32 `(cells,)`."""
    return ((np.arange(num_cells) + 0.5) / num_cells).astype("float32")


def narrow_cells(values, num_cells):
    """The cell of each probability: narrower the closer to 0 or 1."""
    smaller = ops.maximum(ops.minimum(values, 1.0 - values), 0.0)
    position = 0.5 * ops.sqrt(ops.sqrt(2.0 * smaller))
    position = ops.where(values < 0.5, position, 1.0 - position)
    # NaN goes into the first cell, whose sums it makes NaN.
    position = ops.where(ops.isnan(position), 0.0, position * num_cells)
    return ops.cast(ops.minimum(position, num_cells - 1), "int32")


def even_cells(values, num_cells):
    """The cell of each probability; an edge belongs to the cell above it."""
    exact = np.arange(1, num_cells) / num_cells
    edges = exact.astype("float32")
    # The smallest float32 that is not below the edge.
    edges = np.where(edges < exact, np.nextafter(edges, np.float32(2)), edges)
    return ops.digitize(values, edges)


def sum_by(terms, index, num_segments):
    """Sums terms `(n, columns, 4)` by index: `(num_segments, columns, 4)`."""
    num_columns = index.shape[-1]
    index = index * num_columns + ops.arange(num_columns, dtype="int32")
    terms, index = ops.reshape(terms, (-1, 4)), ops.reshape(index, (-1,))
    sums = ops.segment_sum(terms, index, num_segments * num_columns)
    return ops.reshape(sums, (num_segments, num_columns, 4))


def equal_mass_bins(sums, num_bins):
    """The bin of each cell, int32 `(cells, columns)`, as in `inner_edges`."""
    mass, squared_weight = sums[..., 0], sums[..., 3]
    up_to_here = ops.cumsum(mass, axis=0)
    total = up_to_here[-1, 0]  # All columns have the same mass.
    # The smallest weight is one example: 1, unless there are weights. If it
    # shares its cell with larger ones, ranks are off by less than an example.
    weight = ops.divide_no_nan(squared_weight, mass)
    unit = ops.min(ops.where(mass > 0, weight, math.inf))
    examples = ops.round(ops.divide_no_nan(total, unit))
    # In this order halves are exact, as in `np.linspace`.
    ranks = ops.arange(1, num_bins, dtype="float32") * (examples / num_bins)
    ranks = ops.minimum(ops.round(ranks), examples - 1.0)
    ranks = (ranks + RANK_ROUNDING) * unit
    # A bin begins with the cell of its first example.
    above = ops.expand_dims(up_to_here, -1) > ranks
    return ops.sum(ops.cast(above, "int32"), axis=-1)
