"""The Keras side of the losses; the maths is in their functions."""

import keras
from keras import ops

from caltrain_tf.ops.precision import to_float32
from caltrain_tf.ops.replicas import replica_count


class FunctionLoss(keras.losses.Loss):
    """A `keras.losses.Loss` around a function of `y_true` and `y_pred`.

    A subclass names its function and keeps the function's options as
    attributes of the same names, listed in `option_names`.
    """

    function = None
    option_names = ()

    def __init__(self, from_logits, name, **kwargs):
        """Keeps what all losses have: `name`, `reduction` and `dtype`."""
        super().__init__(name=name, **kwargs)
        self.from_logits = from_logits

    def call(self, y_true, y_pred):
        """Returns a value for each example, `(batch,)`."""
        return type(self).function(y_true, y_pred, **self.options())

    def __call__(self, y_true, y_pred, sample_weight=None):
        """Returns the loss as Keras reduces it."""
        mask = getattr(y_pred, "_keras_mask", None)
        y_pred = to_float32(ops.convert_to_tensor(y_pred))
        if mask is not None:
            y_pred._keras_mask = mask
        return super().__call__(y_true, y_pred, sample_weight)

    def options(self):
        """The keyword arguments of the function."""
        options = {name: getattr(self, name) for name in self.option_names}
        return {**options, "from_logits": self.from_logits}

    def get_config(self):
        """Everything that the constructor takes."""
        return {**super().get_config(), **self.options()}


class BatchLoss(FunctionLoss):
    """A loss of the whole batch: its function returns one scalar.

    Keras multiplies and averages what `call` returns for each example. A weight
    inside a bin is something else, so that `__call__` hands the weights to the
    function, and reduces the scalar as Keras would reduce `(batch,)` copies.
    """

    def value(self, y_true, y_pred, sample_weight=None, cross_replica=False):
        """The scalar of the batch, or of all replicas' batches together."""
        return type(self).function(
            y_true,
            y_pred,
            sample_weight=sample_weight,
            cross_replica=cross_replica,
            **self.options(),
        )

    def call(self, y_true, y_pred):
        """Returns the batch's scalar once for each example, `(batch,)`."""
        y_pred = ops.convert_to_tensor(y_pred)
        value = self.value(y_true, y_pred)
        return value * ops.ones_like(y_pred[:, 0], dtype=value.dtype)

    def __call__(self, y_true, y_pred, sample_weight=None):
        """Returns the loss as `model.compile` wants it; see the class."""
        with keras.name_scope(self.name):
            weight = merge_mask(sample_weight, y_pred)
            y_pred = ops.convert_to_tensor(y_pred)
            value = ops.cast(self.value(y_true, y_pred, weight), self.dtype)
            copies = value * ops.ones_like(y_pred[:, 0], dtype=self.dtype)
            if self.reduction in (None, "none"):
                return copies
            if self.reduction == "sum":
                return ops.sum(copies)
            return value / replica_count()


def merge_mask(sample_weight, y_pred):
    """The weights, with 0 where the Keras mask of `y_pred` leaves rows out."""
    mask = getattr(y_pred, "_keras_mask", None)
    if mask is None:
        return sample_weight
    mask = ops.cast(mask, "float32")
    if sample_weight is None:
        return mask
    weight = ops.cast(ops.convert_to_tensor(sample_weight), "float32")
    return ops.reshape(weight, (-1,)) * ops.reshape(mask, (-1,))
