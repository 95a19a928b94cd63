"""The soft-binned calibration error over a stream."""

import keras
from keras import ops

from caltrain_tf.checks import check_choice
from caltrain_tf.checks import check_count
from caltrain_tf.checks import check_flag
from caltrain_tf.checks import check_number
from caltrain_tf.metrics.options import ESTIMATORS
from caltrain_tf.metrics.streaming.base import SumMetric
from caltrain_tf.ops import predictions
from caltrain_tf.ops import soft_binning

MASS, EXCESS, OFFSET, SQUARE = range(4)


@keras.saving.register_keras_serializable("caltrain_tf")
class SoftBinnedECE(SumMetric):
    """`ct.losses.sb_ece` of all examples together, over a stream.

    The loss of a batch depends on which examples are in it; this is the value
    for the whole set. It needs a few sums for each bin. With
    `binning="label"` that is so for `norm=2`.

    Args:
        num_bins: Number of bins, of equal width on [0, 1].
        temperature: Softness of the bins.
        norm: The exponent, at least 1; 2 with `binning="label"`.
        binning: `"label"` or `"bin"`.
        root: Whether to take the root at the end.
        from_logits: Whether `y_pred` holds logits.
        name: The metric's name.
        dtype: Of the metric; the state is float32.

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
    ):
        """Takes the options of `ct.losses.sb_ece`."""
        num_bins = check_count("num_bins", num_bins)
        temperature = check_number("temperature", temperature, low=0)
        norm = check_number("norm", norm, low=1, closed=True)
        binning = check_choice("binning", binning, ESTIMATORS)
        if binning == "label" and norm != 2:
            raise ValueError(
                '`norm` must be 2 with `binning="label"`: other powers are no '
                f"sums over a stream. Received: norm={norm!r}"
            )
        super().__init__(from_logits, name, dtype)
        self.num_bins = num_bins
        self.temperature = temperature
        self.norm = norm
        self.binning = binning
        self.root = check_flag("root", root)
        self.add_sums((4, num_bins))

    def batch_sums(self, y_true, y_pred, weight):
        """Sums over the batch for each bin."""
        confidence = predictions.confidence(y_pred, self.from_logits)
        correct = predictions.correctness(y_true, y_pred)
        membership = weight[:, None] * soft_binning.soft_membership(
            confidence, self.num_bins, self.temperature
        )
        # Distances from the centre stay small, and so does their rounding.
        offset = confidence[:, None] - self._centres()
        return ops.stack(
            [
                ops.sum(membership, axis=0),
                ops.sum(membership * (confidence - correct)[:, None], axis=0),
                ops.sum(membership * offset, axis=0),
                ops.sum(membership * ops.square(offset), axis=0),
            ]
        )

    def value(self, sums):
        """The error; equations 11 and 12 of the paper."""
        mass = sums[MASS]
        safe_mass = ops.maximum(mass, soft_binning.SMALLEST_MASS)
        if self.binning == "bin":
            gap = ops.abs(sums[EXCESS]) / safe_mass
            # A high power of a small gap would underflow.
            scale = ops.max(gap)
            powers = ops.power(ops.divide_no_nan(gap, scale), self.norm)
        else:
            # The mean of (accuracy - c)^2 is (accuracy - mean)^2 + variance.
            offset = ops.divide_no_nan(sums[OFFSET], mass)
            variance = ops.divide_no_nan(sums[SQUARE], mass)
            variance = ops.maximum(variance - ops.square(offset), 0.0)
            confidence = self._centres() + offset
            accuracy = (mass * confidence - sums[EXCESS]) / safe_mass
            scale = 1.0
            powers = ops.square(accuracy - confidence) + variance
        mean = ops.divide_no_nan(ops.sum(mass * powers), ops.sum(mass))
        if self.root:
            return ops.power(mean, 1.0 / self.norm) * scale
        return mean * scale**self.norm

    def options(self):
        """The constructor's arguments beyond name and dtype."""
        return {
            "num_bins": self.num_bins,
            "temperature": self.temperature,
            "norm": self.norm,
            "binning": self.binning,
            "root": self.root,
            **super().options(),
        }

    def _centres(self):
        return (ops.arange(self.num_bins, dtype="float32") + 0.5) / (
            self.num_bins
        )
