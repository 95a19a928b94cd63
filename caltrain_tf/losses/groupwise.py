"""The mean of a loss over groups, in which small groups count like large ones.

`Groupwise` reads class ids and group ids from `y_true`. In a `CompositeLoss`,
the other part gets the class ids only.
"""

import keras
from keras import ops

from caltrain_tf import checks, inputs
from caltrain_tf.losses.base import (
    SHARED,
    SHARED_CHECKS,
    batch_value,
    check_agreement,
    check_options,
    copies,
    describe,
    reduce,
)
from caltrain_tf.losses.registry import get
from caltrain_tf.replicas import sum_over_replicas


@keras.saving.register_keras_serializable("caltrain_tf")
class Groupwise(keras.losses.Loss):
    """The mean over groups of each group's own loss, for `model.compile`.

    The calibration error of a whole batch may be small although one group is
    over-confident and another one under-confident; this loss is not. It is
    computed for the examples of each group separately, and all groups count the
    same, however few examples they have. A group without examples in a batch
    does not count.

    `y_true` has the shape `(..., 2)`, usually `(batch, 2)`: a class id and a
    group id, from 0. In `CompositeLoss("focal", Groupwise("sb_ece", 3))` the
    whole loss takes such labels, and the primary loss gets the class ids. Its
    `part_metrics()` take such labels too; other compiled metrics, such as
    accuracy, get both columns and have to select the first one themselves.

    Args:
        loss: A name of `caltrain_tf.losses`, a config, a `Loss`, or any name or
            callable that `keras.losses.get` knows and that returns a value for
            each example.
        num_groups: Number of groups.
        from_logits: Whether predictions are logits. By default the option of
            `loss`, or False if `loss` is a name.
        name: The loss's name.
        ignore_class: Label of the examples that do not count, such as -1. By
            default the option of `loss`.
        reduction: As in `keras.losses.Loss`, applied to a copy of the batch's
            value for each example that counts.
        dtype: Data type of the result; the computation is in float32.

    Example:
        >>> import caltrain_tf as ct
        >>> loss = ct.losses.Groupwise("dca", num_groups=3)
        >>> probs = [[0.9, 0.1], [0.7, 0.3], [0.4, 0.6], [0.2, 0.8]]
        >>> y_true = [[0, 0], [1, 0], [1, 1], [1, 1]]
        >>> round(float(loss(y_true, probs)), 4)  # Groups of 0.3 and 0.3.
        0.3
        >>> float(ct.losses.dca([0, 1, 1, 1], probs).numpy().round(4))
        0.0

    Reference:
        Karandikar et al., "Soft Calibration Objectives for Neural Networks",
        2021, names calibration of protected groups as future work.
    """

    def __init__(
        self,
        loss,
        num_groups,
        from_logits=None,
        name="groupwise",
        *,
        ignore_class=None,
        reduction="sum_over_batch_size",
        dtype=None,
    ):
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.num_groups = checks.count("num_groups", num_groups)
        given = {"from_logits": from_logits, "ignore_class": ignore_class}
        given = {k: v for k, v in given.items() if v is not None}
        given = check_options(given, SHARED_CHECKS)
        self.loss = get(loss, **given)
        self._shared = {
            option: given.get(option, getattr(self.loss, option, default))
            for option, default in SHARED.items()
            if option != "multi_label"
        }
        self.__dict__.update(self._shared)
        check_agreement(
            "loss", self.loss, {**self._shared, "multi_label": False}, "group"
        )
        if getattr(self.loss, "num_groups", None) is not None:
            raise ValueError(
                "`loss` must not have groups of its own. "
                f"Received: loss={self.loss!r}"
            )

    def of_batch(self, batch):
        """Returns the loss of a `Batch` that has groups, a scalar."""
        total = count = 0.0
        for group in range(self.num_groups):
            is_group = ops.cast(batch.groups == group, "float32")
            weight = inputs.scale(batch.weight * is_group, batch.cross_replica)
            value = batch_value(
                self.loss,
                batch._replace(weight=weight),
                self._shared,
                is_part=True,
            )
            mass = ops.sum(weight)
            if batch.cross_replica:
                mass = sum_over_replicas(mass)
            # A product instead of `where` keeps the NaN of a diverged model.
            total = total + value * ops.cast(mass > 0, "float32")
            count = count + ops.cast(mass > 0, "float32")
        return ops.divide_no_nan(total, count)

    def call(self, y_true, y_pred):
        """Returns the batch's loss once for each example, `(...)`."""
        batch = self._standardize(y_true, y_pred)
        return copies(self.of_batch(batch), batch)

    def __call__(self, y_true, y_pred, sample_weight=None):
        """Returns the loss, reduced as `reduction` says."""
        with keras.name_scope(self.name):
            batch = self._standardize(y_true, y_pred, sample_weight)
            value = reduce(self.of_batch(batch), batch, self.reduction)
            return ops.cast(value, self.dtype)

    def _standardize(self, y_true, y_pred, sample_weight=None):
        return inputs.standardize(
            y_true,
            y_pred,
            sample_weight=sample_weight,
            num_groups=self.num_groups,
            **self._shared,
        )

    def get_config(self):
        """Returns the arguments of the constructor, with `loss` as config."""
        return {
            **super().get_config(),
            "loss": keras.saving.serialize_keras_object(self.loss),
            "num_groups": self.num_groups,
            **self._shared,
        }

    def __repr__(self):
        """Returns the call that makes this loss, without the defaults."""
        return describe(self, {**self.get_config(), "loss": self.loss})
