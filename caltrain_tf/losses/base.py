"""What the losses share: their base class, means and roots."""

import keras
from keras import ops

from caltrain_tf import checks, inputs, replicas

SHARED = ("from_logits", "multi_label", "ignore_class")


class Loss(keras.losses.Loss):
    """A `keras.losses.Loss` of `function`, which returns a scalar or `(...)`.

    Keras weights the values of examples afterwards. This is too late for a
    scalar of the batch: the function gets a `Batch`, which has the weights, and
    `reduction` a copy of the scalar for each example that counts.
    """

    function = None
    cross_replica = False
    num_groups = None

    def __init__(
        self,
        from_logits=False,
        name=None,
        multi_label=False,
        ignore_class=None,
        reduction="sum_over_batch_size",
    ):
        name = name or self.function.__name__
        super().__init__(name=name, reduction=reduction)
        self.from_logits = checks.flag("from_logits", from_logits)
        self.multi_label = checks.flag("multi_label", multi_label)
        self.ignore_class = checks.ignore_class(ignore_class)

    @property
    def options(self):
        """The options of the function that not all losses have."""
        common = (*SHARED, "sample_weight", "cross_replica")
        names = getattr(self.function, "__kwdefaults__", ())
        return {k: getattr(self, k) for k in names if k not in common}

    @property
    def has_own_call(self):
        """Whether a subclass, not this package, defines `call`."""
        return type(self).call is not Loss.call

    def of_batch(self, batch):
        """Returns a scalar, or a value for each example, `(n,)`."""
        value = self.function(batch, None, self.from_logits, **self.options)
        return ops.reshape(value, (-1,)) if len(value.shape) else value

    def standardize(self, y_true, y_pred, sample_weight=None):
        """Returns the arguments as a `Batch`."""
        shared = (getattr(self, name) for name in SHARED)
        others = sample_weight, self.cross_replica, self.num_groups
        return inputs.standardize(y_true, y_pred, *shared, *others)

    def call(self, y_true, y_pred):
        """Returns a value for each example, `(...)`."""
        batch = self.standardize(y_true, y_pred)
        return batch.restore(self.of_batch(batch) * ops.ones_like(batch.weight))

    def __call__(self, y_true, y_pred, sample_weight=None):
        """Returns the loss, reduced as `reduction` says."""
        with keras.name_scope(self.name):
            value, batch = self._evaluate(y_true, y_pred, sample_weight)
            return ops.cast(self._reduce(value, batch), self.dtype)

    def weighted_mean(self, y_true, y_pred, sample_weight=None):
        """Returns sum(w x loss) / sum(w), or the scalar of a whole batch.

        It is not divided by the number of replicas.
        """
        value, batch = self._evaluate(y_true, y_pred, sample_weight)
        return mean(value, batch) if len(value.shape) else value

    def _evaluate(self, y_true, y_pred, sample_weight):
        """The value, a scalar or `(n,)`, and the `Batch`."""
        batch = self.standardize(y_true, y_pred, sample_weight)
        if not self.has_own_call:
            return self.of_batch(batch), batch
        value = ops.cast(self.call(y_true, y_pred), "float32")
        if len(value.shape):
            value = ops.reshape(value, (-1,))
            value = ops.where(batch.sample_weight != 0, value, 0.0)
        return value, batch

    def _reduce(self, value, batch):
        is_mean = self.reduction not in (None, "none", "sum")
        weight = batch.sample_weight
        if not len(value.shape):
            if is_mean:
                return value / replicas.replica_count()
            weight = ops.cast(weight != 0, "float32")
        values = value * weight
        if self.reduction == "sum":
            return ops.sum(values)
        if not is_mean:
            return batch.restore(values)
        # As in Keras: a weight of 0 counts, an example left out does not.
        is_weighted = self.reduction == "mean_with_sample_weight"
        count = ops.sum(weight if is_weighted else batch.mask)
        total = ops.divide_no_nan(ops.sum(values), count)
        return total / replicas.replica_count()

    def get_config(self):
        """Returns the arguments of the constructor."""
        shared = {name: getattr(self, name) for name in SHARED}
        return {**super().get_config(), **shared, **self.options}


def per_example(values, batch):
    """Values `(n,)` as `(...)`; 0 where an example is ignored or masked."""
    return batch.restore(values * batch.mask)


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
