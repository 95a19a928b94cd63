"""What all streaming metrics share: sums, and how they add up."""

import keras
from keras import ops

from caltrain_tf.checks import check_flag
from caltrain_tf.ops import compensated
from caltrain_tf.ops import labels


class SumMetric(keras.metrics.Metric):
    """A metric whose state is an array of sums over the examples.

    Keras' callbacks take `_direction` to find out that less is better.

    A subclass says what a batch adds (`batch_sums`) and what the sums mean
    (`value`). The sums are kept in pairs of float32, so that they do not drift.
    """

    _direction = "down"

    def __init__(self, from_logits, name, dtype):
        """Takes whether predictions are logits."""
        super().__init__(name=name, dtype=dtype)
        self.from_logits = check_flag("from_logits", from_logits)

    def add_sums(self, shape):
        """Creates the state."""
        self.high = self.add_variable(
            shape, "zeros", dtype="float32", name="high"
        )
        self.low = self.add_variable(
            shape, "zeros", dtype="float32", name="low"
        )

    def batch_sums(self, y_true, y_pred, weight):
        """What a standardized batch adds to the state."""
        raise NotImplementedError

    def value(self, sums):
        """The metric, from the sums over all examples."""
        raise NotImplementedError

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Adds a batch.

        Args:
            y_true: Class ids `(batch,)` or label distributions
                `(batch, classes)`.
            y_pred: Probabilities, or logits, `(batch, classes)`.
            sample_weight: Weights `(batch,)`.
        """
        y_true = _as_tensor("y_true", y_true)
        y_pred = _as_tensor("y_pred", y_pred)
        if sample_weight is not None:
            sample_weight = _as_tensor("sample_weight", sample_weight)
        y_true, y_pred, weight = labels.standardize(
            y_true, y_pred, self.from_logits, sample_weight
        )
        self.build_once(y_pred.shape[-1])
        if y_pred.shape[0] == 0:
            return
        self._add(self.batch_sums(y_true, y_pred, weight))

    def build_once(self, num_classes):
        """Creates a state that depends on the number of classes."""
        # A body of its own, without which AutoGraph warns.
        return None

    def result(self):
        """The metric of all examples since the last reset."""
        return self.value(self.high + self.low)

    def merge_state(self, metrics):
        """Adds the examples that other metrics of this kind have seen."""
        metrics = list(metrics)
        for metric in metrics:
            if type(metric) is not type(self) or (
                metric.options() != self.options()
            ):
                raise ValueError(
                    "`metrics` must hold metrics with the same options as this "
                    f"one, {self.options()}. Received: {metric!r}"
                )
        for metric in metrics:
            self._add(ops.convert_to_tensor(metric.high))
            self.low.assign(self.low + metric.low)

    def options(self):
        """The constructor's arguments beyond name and dtype."""
        return {"from_logits": self.from_logits}

    def __repr__(self):
        """The call that makes such a metric."""
        options = {**self.options(), "name": self.name}
        listed = ", ".join(f"{key}={value!r}" for key, value in options.items())
        return f"{type(self).__name__}({listed})"

    def get_config(self):
        """Everything that the constructor takes."""
        return {**super().get_config(), **self.options()}

    def _add(self, sums):
        high, low = compensated.add(
            ops.convert_to_tensor(self.high),
            ops.convert_to_tensor(self.low),
            sums,
        )
        self.high.assign(high)
        self.low.assign(low)


def _as_tensor(name, values):
    """`values` as a tensor of real numbers, or an error with their name."""
    try:
        tensor = ops.convert_to_tensor(values)
        dtype = keras.backend.standardize_dtype(tensor.dtype)
    except Exception as error:
        raise ValueError(
            f"`{name}` must be convertible to a tensor. Received: {name} of "
            f"type {type(values).__name__}, where {error}"
        ) from error
    if dtype != "bool" and not dtype.startswith(
        ("float", "bfloat", "int", "uint")
    ):
        raise ValueError(
            f"`{name}` must hold real numbers. Received: {name}.dtype={dtype}"
        )
    return tensor


class MeanMetric(SumMetric):
    """The weighted mean of a value of each example."""

    def __init__(self, from_logits, name, dtype):
        """Creates the state: the sum of the values and that of the weights."""
        super().__init__(from_logits, name, dtype)
        self.add_sums((2,))

    def row_values(self, y_true, y_pred):
        """A value for each example, `(batch,)`."""
        raise NotImplementedError

    def batch_sums(self, y_true, y_pred, weight):
        """Sums of weighted values and of weights."""
        values = weight * self.row_values(y_true, y_pred)
        return ops.stack([ops.sum(values), ops.sum(weight)])

    def value(self, sums):
        """The mean; 0 without any weight."""
        return ops.divide_no_nan(sums[0], sums[1])
