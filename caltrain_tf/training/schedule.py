"""The learning rate of Uncertainty Baselines: warm-up and step decay."""

import keras
from keras import ops

from caltrain_tf import checks


@keras.saving.register_keras_serializable("caltrain_tf")
class WarmUpStepDecay(keras.optimizers.schedules.LearningRateSchedule):
    """A linear warm-up from 0, followed by a decay at given epochs.

    Args:
        base_learning_rate: The rate after the warm-up.
        steps_per_epoch: Optimizer steps per epoch; with interleaved training,
            those of both parts.
        decay_ratio: Factor by which the rate is multiplied at each decay.
        decay_epochs: The epochs at whose start the rate decays, ascending.
        warmup_epochs: Number of epochs of the warm-up; 0 for no warm-up.
        name: The schedule's name.

    Example:
        >>> import caltrain_tf as ct
        >>> rate = ct.training.WarmUpStepDecay(0.4, 100, 0.2, [60, 120, 160])
        >>> [round(float(rate(step)), 4) for step in (0, 50, 100, 6000, 12000)]
        [0.0, 0.2, 0.4, 0.08, 0.016]

    Reference:
        Goyal et al., "Accurate, Large Minibatch SGD", 2017.
    """

    def __init__(
        self,
        base_learning_rate,
        steps_per_epoch,
        decay_ratio,
        decay_epochs,
        warmup_epochs=1,
        name="WarmUpStepDecay",
    ):
        super().__init__()
        self.base_learning_rate = checks.number(
            "base_learning_rate", base_learning_rate, low=0
        )
        self.steps_per_epoch = checks.count("steps_per_epoch", steps_per_epoch)
        self.decay_ratio = checks.number("decay_ratio", decay_ratio, low=0)
        self.decay_epochs = list(decay_epochs)
        self.warmup_epochs = warmup_epochs
        self.name = name
        starts = [0, warmup_epochs, *decay_epochs]
        if starts != sorted(starts):
            raise ValueError(
                "`decay_epochs` must ascend and come after `warmup_epochs`, "
                f"which is at least 0. Received: decay_epochs={decay_epochs}, "
                f"warmup_epochs={warmup_epochs}"
            )

    def __call__(self, step):
        """Returns the rate of an optimizer step, counted from 0."""
        step = ops.cast(step, "float32")
        # In steps, because a quotient may be rounded below a whole epoch.
        warmup_steps = self.warmup_epochs * self.steps_per_epoch
        rate = ops.full((), self.base_learning_rate, dtype="float32")
        if warmup_steps > 0:
            rate = rate * ops.minimum(step / warmup_steps, 1.0)
        for count, epoch in enumerate(self.decay_epochs, start=1):
            decayed = self.base_learning_rate * self.decay_ratio**count
            start = epoch * self.steps_per_epoch
            rate = ops.where(step >= start, decayed, rate)
        return rate

    def get_config(self):
        """Returns the arguments of the constructor."""
        return dict(vars(self))
