"""The objective of training: primary loss + beta x secondary loss."""

import keras
from keras import ops

from caltrain_tf import checks
from caltrain_tf.losses import base, registry


@keras.saving.register_keras_serializable("caltrain_tf")
class CompositeLoss(base.Loss):
    """`primary + beta * secondary`, for `model.compile`.

    With `sample_weight`, the primary loss is sum(w x loss) / sum(w), where
    Keras' own losses divide by the batch size, and the secondary loss weights
    examples within its bins: the scale of the weights does not matter, and
    padding a batch does not shift the balance of the two.

    Args:
        primary: A name of `caltrain_tf.losses`, a config, a `Loss`, or any name
            or callable `(y_true, y_pred)` that `keras.losses.get` knows. None
            for the secondary loss alone, as in interleaved training.
        secondary: Likewise. At least one of the two must be given. If one is a
            `Groupwise` loss, `y_true` is `(batch, 2)`, a class id and a group
            id, and the other loss gets the class ids.
        beta: Weight of the secondary loss, at least 0. The guide on losses says
            when to raise it.
        from_logits: Whether predictions are logits, for both parts. A callable
            without an argument of this name gets the predictions as they are.
        cross_replica: Whether to compute the loss of all replicas' batches
            together, which is not the mean of the replicas' losses. On CPU and
            GPU this needs `model.compile(jit_compile=False)`.
        name: The loss's name.
        multi_label, ignore_class: As in `ct.losses.nll`.
        reduction: As in `keras.losses.Loss`, applied to a copy of the batch's
            value for each example that counts.

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
        beta=0.1,
        from_logits=False,
        cross_replica=False,
        name="composite_loss",
        *,
        multi_label=False,
        ignore_class=None,
        reduction="sum_over_batch_size",
    ):
        shared = from_logits, name, multi_label, ignore_class, reduction
        super().__init__(*shared)
        self.beta = checks.number("beta", beta, low=0, closed=True)
        self.cross_replica = checks.flag("cross_replica", cross_replica)
        if primary is None and secondary is None:
            raise ValueError(
                "`primary` or `secondary` must be given. "
                "Received: primary=None, secondary=None"
            )
        self.primary = self._get_part("primary", primary)
        self.secondary = self._get_part("secondary", secondary)

    def parts(self, y_true, y_pred, sample_weight=None):
        """Returns the two scalars of the loss, `(primary, secondary)`."""
        batch = self.standardize(y_true, y_pred, sample_weight)
        return self.part("primary", batch), self.part("secondary", batch)

    def terms(self, y_true, y_pred, sample_weight=None):
        """Returns `(weighted_mean, primary, secondary)`, three scalars."""
        primary, secondary = self.parts(y_true, y_pred, sample_weight)
        total = primary + self.beta * secondary
        if self.has_own_call:
            total = self.weighted_mean(y_true, y_pred, sample_weight)
        return total, primary, secondary

    def part_metrics(self):
        """Returns metrics of the two parts, for `compile(metrics=...)`.

        They appear as `primary_loss` and `secondary_loss` in the history.
        """
        names = ("primary", "secondary")
        return [PartMetric(self, name) for name in names if getattr(self, name)]

    def part(self, name, batch):
        """Returns the scalar of a part for a `Batch`; 0 if there is none."""
        part = getattr(self, name)
        return value_of_part(part, batch) if part else ops.zeros(())

    def of_batch(self, batch):
        """Returns the loss of a `Batch`, a scalar."""
        primary = self.part("primary", batch)
        return primary + self.beta * self.part("secondary", batch)

    def get_config(self):
        """Returns the arguments of the constructor, with parts as configs."""
        serialize = keras.saving.serialize_keras_object
        return {
            **super().get_config(),
            "primary": serialize(self.primary),
            "secondary": serialize(self.secondary),
            "beta": self.beta,
            "cross_replica": self.cross_replica,
        }

    def _get_part(self, role, identifier):
        if identifier is None:
            return None
        shared = {name: getattr(self, name) for name in base.SHARED}
        part = registry.find(role, identifier, shared)
        check_agreement(role, part, shared)
        count = getattr(part, "num_groups", None)
        if None not in (count, self.num_groups) and count != self.num_groups:
            raise ValueError(
                "`primary` and `secondary` must agree on `num_groups`. "
                f"Received: {self.num_groups} and {count}"
            )
        self.num_groups = self.num_groups or count
        return part


@keras.saving.register_keras_serializable("caltrain_tf")
class PartMetric(keras.metrics.Mean):
    """The mean over batches of one part of a `CompositeLoss`.

    `loss.part_metrics()` creates it. If loss and metric are compiled together,
    XLA computes the part once for both.

    Args:
        loss: The `CompositeLoss`, or its config.
        part: `"primary"` or `"secondary"`.
        name, dtype: As in `keras.metrics.Metric`.
    """

    def __init__(self, loss, part, name=None, dtype=None):
        checks.choice("part", part, ("primary", "secondary"))
        super().__init__(name=name or f"{part}_loss", dtype=dtype)
        if not isinstance(loss, CompositeLoss):
            loss = keras.saving.deserialize_keras_object(loss)
        self.loss = loss
        self.part = part

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Adds a batch, weighted by the sum of its sample weights."""
        batch = self.loss.standardize(y_true, y_pred, sample_weight)
        value = self.loss.part(self.part, batch)
        super().update_state(value, ops.sum(batch.sample_weight))

    def get_config(self):
        """Returns the arguments of the constructor."""
        loss = keras.saving.serialize_keras_object(self.loss)
        return {**super().get_config(), "loss": loss, "part": self.part}


def value_of_part(loss, batch, is_group=False):
    """The scalar of a loss of this package, of Keras or of the user."""
    if isinstance(loss, base.Loss) and not loss.has_own_call:
        return loss.weighted_mean(batch, None)
    if isinstance(loss, keras.losses.Loss):
        values = loss.call(*batch.given)
    else:
        options = {"from_logits": batch.from_logits}
        values = loss(*batch.given, **registry.accepted(loss, options))
    values = ops.cast(values, "float32")
    if len(values.shape):
        values = ops.mean(values, axis=tuple(range(1, len(values.shape))))
        return base.mean(values, batch)
    if is_group:  # The scalar would be that of all examples.
        raise ValueError(
            "`loss` must return a value for each example. Received: "
            f"loss={loss!r}, which returned a scalar"
        )
    return values


def check_agreement(role, part, shared):
    """Raises if a part of a loss has other options than the whole."""
    for option, expected in shared.items():
        theirs = getattr(part, option, expected)
        if theirs != expected and (
            option == "from_logits" or isinstance(part, base.Loss)
        ):
            raise ValueError(
                f"`{role}` and the whole loss must agree on `{option}`. "
                f"Received: {role}.{option}={theirs}, {option}={expected}"
            )
