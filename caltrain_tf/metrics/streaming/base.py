"""The base class of streaming metrics, whose state is an array of sums."""

import keras
from keras import ops

from caltrain_tf import checks, inputs
from caltrain_tf.metrics.streaming import histogram


class StreamingMetric(keras.metrics.Metric):
    """A metric whose state is an array of sums over the examples.

    A subclass defines what a batch adds (`updated`) and the metric of the sums
    (`value`). By default, this is the weighted mean of `row_values`.

    Keras' callbacks read from `_direction` that lower is better.
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
        """Creates the state: sums of this shape, as pairs of float32."""
        *leading, columns = shape
        self.sums = self.add_variable(
            (*leading, 2 * columns), "zeros", dtype="float32", name="sums"
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
        self.build_once(batch.predictions.shape[-1])
        if batch.predictions.shape[0] != 0:
            state = ops.convert_to_tensor(self.sums)
            self.sums.assign(self.updated(state, batch))

    def build_once(self, num_classes):
        """Creates the state if it depends on the number of classes."""
        # AutoGraph warns about a function without a body.
        return None

    def row_values(self, batch):
        """Returns a value for each example, `(n,)`."""
        raise NotImplementedError

    def updated(self, state, batch):
        """Returns the state with the examples of an `inputs.Batch` added."""
        weight = batch.sample_weight
        values = ops.stack([weight * self.row_values(batch), weight])
        return histogram.add(state, ops.sum(values, axis=-1))

    def value(self, sums):
        """Returns the metric of the sums over all examples; 0 without any."""
        return ops.divide_no_nan(sums[0], sums[1])

    def result(self):
        """Returns the metric of all examples since the reset; 0 without any."""
        return self.value(histogram.total(ops.convert_to_tensor(self.sums)))

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
        high, low = ops.split(ops.convert_to_tensor(metric.sums), 2, axis=-1)
        state = histogram.add(ops.convert_to_tensor(self.sums), high)
        self.sums.assign(histogram.add(state, low))

    def get_config(self):
        """Returns the arguments of the constructor."""
        return {**super().get_config(), **self._options}

    def __repr__(self):
        """Returns the call that makes such a metric."""
        options = self.get_config()
        del options["dtype"]
        listed = ", ".join(f"{key}={value!r}" for key, value in options.items())
        return f"{type(self).__name__}({listed})"
