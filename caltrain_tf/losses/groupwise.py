"""The mean of a loss over groups, which all count the same."""

import keras
from keras import ops

from caltrain_tf import checks, inputs
from caltrain_tf.losses import base, composite, registry


@keras.saving.register_keras_serializable("caltrain_tf")
class Groupwise(base.Loss):
    """The mean over groups of each group's own loss, for `model.compile`.

    The calibration error of a whole batch may be small although one group is
    over-confident and another one under-confident; this loss is not. All groups
    with examples in a batch count the same.

    `y_true` has the shape `(..., 2)`, usually `(batch, 2)`: a class id and a
    group id, from 0. In `CompositeLoss("focal", Groupwise("sb_ece", 3))` the
    whole loss takes such labels, and the primary loss gets the class ids. Its
    `part_metrics()` take such labels too; other compiled metrics, such as
    accuracy, have to select the first column themselves. `class_weight` of
    `fit` does not work with such labels, which Keras takes for one-hot rows:
    pass `sample_weight`.

    Args:
        loss: As in `CompositeLoss`; callables and losses of Keras must return a
            value for each example.
        num_groups: Number of groups.
        from_logits, ignore_class: As in `ct.losses.nll`. By default the options
            of `loss`, or False and None if `loss` is a name.
        name, reduction: As in `CompositeLoss`.

    Example:
        >>> import caltrain_tf as ct
        >>> loss = ct.losses.Groupwise("dca", num_groups=3)
        >>> probs = [[0.9, 0.1], [0.7, 0.3], [0.4, 0.6], [0.2, 0.8]]
        >>> y_true = [[0, 0], [1, 0], [1, 1], [1, 1]]
        >>> round(float(loss(y_true, probs)), 4)  # Groups of 0.3 and 0.3.
        0.3
        >>> float(ct.losses.dca([0, 1, 1, 1], probs).numpy().round(4))
        0.0
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
    ):
        given = {"from_logits": from_logits, "ignore_class": ignore_class}
        given = {k: v for k, v in given.items() if v is not None}
        self.loss = registry.find("loss", loss, given)
        shared = {
            "from_logits": getattr(self.loss, "from_logits", False),
            "ignore_class": getattr(self.loss, "ignore_class", None),
            **given,
            "multi_label": False,
        }
        super().__init__(name=name, reduction=reduction, **shared)
        self.num_groups = checks.count("num_groups", num_groups)
        composite.check_agreement("loss", self.loss, shared)

    def of_batch(self, batch):
        """Returns the loss of a `Batch` that has groups, a scalar."""
        total = count = 0.0
        for index in range(self.num_groups):
            is_group = ops.cast(batch.groups == index, "float32")
            weight = inputs.scale(batch.weight * is_group, batch.cross_replica)
            group = batch._replace(weight=weight)
            value = composite.value_of_part(self.loss, group, is_group=True)
            mass = batch.sum_over_replicas(ops.sum(weight))
            # A mass of NaN counts: it shows invalid examples.
            total = total + value * ops.cast(mass != 0, "float32")
            count = count + ops.cast(mass != 0, "float32")
        return ops.divide_no_nan(total, count)

    def get_config(self):
        """Returns the arguments of the constructor, with `loss` as config."""
        config = super().get_config()
        del config["multi_label"]
        loss = keras.saving.serialize_keras_object(self.loss)
        return {**config, "loss": loss, "num_groups": self.num_groups}
