"""Primary loss + beta x secondary loss: how a classifier is trained."""

import keras
from keras import ops

from caltrain_tf.checks import check_number
from caltrain_tf.losses.base import BatchLoss
from caltrain_tf.losses.base import merge_mask
from caltrain_tf.losses.registry import get
from caltrain_tf.ops import labels
from caltrain_tf.ops.replicas import replica_count
from caltrain_tf.ops.replicas import sum_over_replicas


@keras.saving.register_keras_serializable("caltrain_tf")
class CompositeLoss(keras.losses.Loss):
    """`primary + beta * secondary`, for `model.compile`.

    With `sample_weight`, both parts are weighted means: the primary loss is
    sum(w x loss) / sum(w), and the secondary one weighs examples inside its
    bins. So an example of weight 0 changes nothing, whatever it holds, and
    padding a batch does not shift the balance of the two. (Keras' own losses
    divide by the batch size instead of by the weights.)

    Args:
        primary: A name of `caltrain_tf.losses`, a config, or a `Loss`. None
            for the secondary loss alone, as interleaved training takes it.
        secondary: Likewise. At least one of them is given.
        beta: How much the secondary loss counts, at least 0.
        from_logits: Whether predictions are logits; for both parts.
        cross_replica: Whether the loss of all replicas' batches together is
            meant. A calibration error of the global batch is not the mean of
            the replicas' errors. On CPU and GPU this needs
            `model.compile(jit_compile=False)`.
        name: The loss's name.
        **kwargs: `dtype` of Keras' losses.

    Example:
        >>> import caltrain_tf as ct
        >>> loss = ct.CompositeLoss("focal", "sb_ece", beta=0.5)
        >>> probs = [[0.9, 0.1], [0.7, 0.3], [0.4, 0.6]]
        >>> round(float(loss([0, 1, 1], probs)), 4)
        0.2812
        >>> [round(float(part), 4) for part in loss.parts([0, 1, 1], probs)]
        [0.1486, 0.2652]
    """

    def __init__(
        self,
        primary,
        secondary=None,
        beta=1.0,
        from_logits=False,
        cross_replica=False,
        name="composite_loss",
        **kwargs,
    ):
        """Looks up both parts and checks that they agree."""
        check_number("beta", beta, low=0, closed=True)
        super().__init__(name=name, **kwargs)
        if primary is None and secondary is None:
            raise ValueError(
                "`primary` or `secondary` must be given. "
                "Received: primary=None, secondary=None"
            )
        self.primary = _get_part("primary", primary, from_logits)
        self.secondary = _get_part("secondary", secondary, from_logits)
        self.beta = beta
        self.from_logits = from_logits
        self.cross_replica = cross_replica

    def parts(self, y_true, y_pred, sample_weight=None):
        """The two scalars that the loss is made of, `(primary, secondary)`."""
        weight = merge_mask(sample_weight, y_pred)
        y_true, y_pred, weight = labels.standardize(
            y_true, y_pred, self.from_logits, weight
        )
        return tuple(
            self._value_of(part, y_true, y_pred, weight)
            for part in (self.primary, self.secondary)
        )

    def part_metrics(self):
        """Metrics that show the two parts: `compile(metrics=...)`.

        They appear as `primary_loss` and `secondary_loss` in the progress bar,
        the history and TensorBoard, and with `val_` in front for validation.
        """
        from caltrain_tf.losses.part_metric import PartMetric

        return [
            PartMetric(self, name)
            for name in PartMetric.PARTS
            if getattr(self, name) is not None
        ]

    def call(self, y_true, y_pred):
        """Returns the batch's loss once for each example, `(batch,)`."""
        y_pred = ops.convert_to_tensor(y_pred)
        primary, secondary = self.parts(y_true, y_pred)
        value = primary + self.beta * secondary
        return value * ops.ones_like(y_pred[:, 0], dtype=value.dtype)

    def __call__(self, y_true, y_pred, sample_weight=None):
        """Returns the scalar loss, divided by the number of replicas."""
        with keras.name_scope(self.name):
            primary, secondary = self.parts(y_true, y_pred, sample_weight)
            value = (primary + self.beta * secondary) / replica_count()
            return ops.cast(value, self.dtype)

    def _value_of(self, part, y_true, y_pred, weight):
        if part is None:
            return ops.zeros((), "float32")
        if isinstance(part, BatchLoss):
            return part.value(y_true, y_pred, weight, self.cross_replica)
        values = part.call(y_true, y_pred)
        sums = ops.stack([ops.sum(weight * values), ops.sum(weight)])
        if self.cross_replica:
            sums = sum_over_replicas(sums)
        return ops.divide_no_nan(sums[0], sums[1])

    def get_config(self):
        """Everything that the constructor takes, the parts as configs."""
        config = super().get_config()
        del config["reduction"]
        serialize = keras.saving.serialize_keras_object
        return {
            **config,
            "primary": serialize(self.primary),
            "secondary": serialize(self.secondary),
            "beta": self.beta,
            "from_logits": self.from_logits,
            "cross_replica": self.cross_replica,
        }


def _get_part(role, identifier, from_logits):
    if identifier is None or isinstance(identifier, keras.losses.Loss):
        part = identifier
    else:
        part = get(identifier, from_logits=from_logits)
    part_from_logits = getattr(part, "from_logits", from_logits)
    if part_from_logits != from_logits:
        raise ValueError(
            f"`{role}` and the composite loss must agree on `from_logits`. "
            f"Received: {role}.from_logits={part_from_logits}, "
            f"from_logits={from_logits}"
        )
    return part
