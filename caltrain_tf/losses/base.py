"""What the losses share: their base classes, means and roots.

A loss is a function `(y_true, y_pred, from_logits=False, *, ...)`, which reads
its arguments into an `inputs.Batch` and returns a value for each example,
`(...)`, or one scalar for the whole batch. Its class is a `FunctionLoss`.
"""

import inspect

import keras
from keras import ops

from caltrain_tf import checks, inputs, replicas

SHARED = ("from_logits", "multi_label", "ignore_class")


class Loss(keras.losses.Loss):
    """A `keras.losses.Loss` that reads its arguments into a `Batch`.

    A value of a whole batch cannot be weighted afterwards, as Keras weights the
    values of examples. Therefore a subclass defines `of_batch`, which sees the
    weights, and `reduction` gets a copy of a scalar for each example that
    counts. A subclass of the user may define `call` instead.
    """

    cross_replica = False
    num_groups = None

    def __init__(
        self, from_logits, name, multi_label, ignore_class, reduction, dtype
    ):
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.from_logits = checks.flag("from_logits", from_logits)
        self.multi_label = checks.flag("multi_label", multi_label)
        self.ignore_class = checks.ignore_class(ignore_class)

    def of_batch(self, batch):
        """Returns a scalar, or a value for each example, `(n,)`."""
        raise NotImplementedError

    def standardize(self, y_true, y_pred, sample_weight=None):
        """Returns the arguments as a `Batch`."""
        return inputs.standardize(
            y_true,
            y_pred,
            self.from_logits,
            self.multi_label,
            self.ignore_class,
            sample_weight,
            self.cross_replica,
            self.num_groups,
        )

    def call(self, y_true, y_pred):
        """Returns a value for each example, `(...)`."""
        batch = self.standardize(y_true, y_pred)
        value = self.of_batch(batch)
        return batch.restore(value * ops.ones_like(batch.sample_weight))

    def __call__(self, y_true, y_pred, sample_weight=None):
        """Returns the loss, reduced as `reduction` says."""
        with keras.name_scope(self.name):
            value, batch = self._evaluate(y_true, y_pred, sample_weight)
            return ops.cast(_reduce(value, batch, self.reduction), self.dtype)

    def weighted_mean(self, y_true, y_pred, sample_weight=None):
        """Returns the loss of the batch, a scalar, whatever `reduction` is.

        It is sum(w x loss) / sum(w) for losses of examples. Losses of a whole
        batch weight the examples themselves. It is not divided by the number of
        replicas.
        """
        value, batch = self._evaluate(y_true, y_pred, sample_weight)
        return mean(value, batch) if len(value.shape) else value

    def _evaluate(self, y_true, y_pred, sample_weight):
        """The value, a scalar or `(n,)`, and the `Batch`."""
        batch = self.standardize(y_true, y_pred, sample_weight)
        if not has_own_call(self):
            return self.of_batch(batch), batch
        value = ops.cast(self.call(y_true, y_pred), "float32")
        if len(value.shape):
            value = ops.reshape(value, (-1,))
            value = ops.where(batch.sample_weight != 0, value, 0.0)
        return value, batch

    def get_config(self):
        """Returns the arguments of the constructor."""
        shared = {name: getattr(self, name) for name in SHARED}
        return {**super().get_config(), **shared}

    def __repr__(self):
        """Returns the call that makes this loss, without the defaults."""
        chosen = [
            f"{name}={getattr(self, name)!r}"
            for name, parameter in inspect.signature(
                type(self)
            ).parameters.items()
            if name != "dtype"
            and getattr(self, name, parameter.default) != parameter.default
        ]
        return f"{type(self).__name__}({', '.join(chosen)})"


class FunctionLoss(Loss):
    """A loss with the value of `function`, whose options are attributes."""

    function = None

    @property
    def options(self):
        """The options of the function that not all losses have."""
        common = (*SHARED, "sample_weight", "cross_replica")
        return {
            name: getattr(self, name)
            for name in self.function.__kwdefaults__
            if name not in common
        }

    def of_batch(self, batch):
        """Returns the function's value, a scalar or `(n,)`."""
        value = self.function(batch, None, self.from_logits, **self.options)
        return ops.reshape(value, (-1,)) if len(value.shape) else value

    def get_config(self):
        """Returns the arguments of the constructor.

        A loss with a custom name also has the name of its kind, as `loss`.
        """
        config = {**super().get_config(), **self.options}
        parameter = inspect.signature(type(self)).parameters.get("name")
        kind = parameter.default if parameter else self.name
        return config if self.name == kind else {**config, "loss": kind}

    @classmethod
    def from_config(cls, config):
        """Returns the loss whose `get_config` gave `config`."""
        return cls(**{k: v for k, v in config.items() if k != "loss"})


def per_example(values, batch):
    """Values `(n,)` as `(...)`; 0 where an example is ignored or masked."""
    values = inputs.nan_where_invalid(values, batch)
    if batch.mask is not None:
        values = ops.where(batch.mask != 0, values, 0.0)
    return batch.restore(values)


def mean(values, batch):
    """The weighted mean over examples of `(n,)` or `(n, columns)`."""
    total = batch.sum_over_replicas(ops.sum(batch.weight))
    # Divided before the sum, which could overflow.
    share = ops.divide_no_nan(batch.weight, total)
    if len(values.shape) == 2:
        share = ops.expand_dims(share, -1)
    return batch.sum_over_replicas(ops.sum(share * values, axis=0))


def root(value, exponent):
    """`value ** (1 / exponent)`, with a gradient of 0 where `value` is 0."""
    # With this comparison NaN stays NaN and does not become an error of 0.
    is_zero = value <= 0
    rooted = ops.power(ops.where(is_zero, 1.0, value), 1.0 / exponent)
    return ops.where(is_zero, 0.0, rooted)


def has_own_call(loss):
    """Whether a subclass, not this package, defines `call`."""
    return type(loss).call is not Loss.call


def _reduce(value, batch, reduction):
    """Applies Keras' `reduction` to a scalar or to values `(n,)`."""
    is_scalar = len(value.shape) == 0
    is_mean = reduction not in (None, "none", "sum")
    if is_scalar and is_mean:
        return value / replicas.replica_count()
    weight = batch.sample_weight
    if is_scalar:
        weight = ops.cast(weight != 0, "float32")
    values = value * weight
    if not is_mean:
        return ops.sum(values) if reduction == "sum" else batch.restore(values)
    # As in Keras: a weight of 0 counts, an example left out does not.
    counts = batch.mask
    if reduction == "mean_with_sample_weight":
        counts = batch.sample_weight
    count = ops.sum(ops.ones_like(values) if counts is None else counts)
    return ops.divide_no_nan(ops.sum(values), count) / replicas.replica_count()
