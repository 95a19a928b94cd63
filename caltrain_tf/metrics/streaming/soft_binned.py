"""The streaming soft-binned calibration error."""

import keras
from keras import ops

from caltrain_tf import checks
from caltrain_tf.losses import soft_bins
from caltrain_tf.metrics.binned import ESTIMATORS
from caltrain_tf.metrics.streaming import histogram
from caltrain_tf.metrics.streaming.base import StreamingMetric


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
        binning = checks.choice("binning", binning, ESTIMATORS)
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

    def updated(self, state, batch):
        """Returns the state with a batch added."""
        confidence = batch.confidence()
        correct = batch.correctness()
        membership = soft_bins.soft_membership(
            confidence, self.num_bins, self.temperature
        )
        membership = membership * batch.sample_weight[:, None]
        distance = confidence[:, None] - self._centres()
        counts = ops.cast(batch.sample_weight != 0, "float32")
        values = [
            membership,
            membership * (confidence - correct)[:, None],
            membership * distance,
            membership * ops.square(distance),
            ops.ones_like(membership) * counts[:, None],
        ]
        return histogram.add(
            state, ops.stack([ops.sum(value, axis=0) for value in values])
        )

    def value(self, sums):
        """Returns the error (equations 11 and 12 of the paper)."""
        mass, excess, distance, square, count = ops.unstack(sums, num=5)
        all_mass = ops.sum(mass)
        # As in the loss, whose weights have a mean of 1.
        smallest = soft_bins.SMALLEST_MASS * all_mass
        safe_mass = ops.maximum(mass, ops.divide_no_nan(smallest, count))
        scale = 1.0
        if self.binning == "bin":
            gap = ops.divide_no_nan(ops.abs(excess), safe_mass)
            # A high power of a small gap would underflow.
            scale = ops.max(gap)
            powers = ops.power(ops.divide_no_nan(gap, scale), self.norm)
        else:
            # The mean of (accuracy - c)^2 is (accuracy - mean)^2 + variance.
            distance = ops.divide_no_nan(distance, mass)
            variance = ops.divide_no_nan(square, mass)
            variance = ops.maximum(variance - ops.square(distance), 0.0)
            confidence = self._centres() + distance
            hits = mass * confidence - excess
            accuracy = ops.divide_no_nan(hits, safe_mass)
            powers = ops.square(accuracy - confidence) + variance
        mean = ops.divide_no_nan(ops.sum(mass * powers), all_mass)
        if self.root:
            return ops.power(mean, 1.0 / self.norm) * scale
        return mean * scale**self.norm

    def _centres(self):
        return (ops.arange(self.num_bins, dtype="float32") + 0.5) / (
            self.num_bins
        )
