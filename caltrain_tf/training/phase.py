"""A part of an epoch: which batches, with which loss."""

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from caltrain_tf.training import batches
from caltrain_tf.training.execution import Execution


@dataclasses.dataclass
class Phase:
    """A part of an epoch.

    Attributes:
        name: In the logs: `train` or `held_out`.
        argument: The argument of `Trainer.fit` that the data came by.
        source: A dataset, or a callable that returns that of an epoch.
        steps: Batches of an epoch; None for all that there are.
        execution: What runs the steps.
    """

    name: str
    argument: str
    source: tf.data.Dataset | Callable
    steps: int | None
    execution: Execution

    def __post_init__(self):
        """Counts the batches, and checks their size."""
        dataset = self.data(0)
        strategy = self.execution.strategy
        batches.check_training_batches(strategy, dataset)
        self.steps = batches.count_batches(self.argument, dataset, self.steps)
        self.batch_size = batches.batch_size(dataset)

    def data(self, epoch):
        """The batches of an epoch."""
        dataset = self.source(epoch) if callable(self.source) else self.source
        if not isinstance(dataset, tf.data.Dataset):
            raise ValueError(
                f"`{self.argument}` must be a `tf.data.Dataset` or a callable "
                f"that returns one. Received: {dataset!r}"
            )
        return dataset

    def iterator(self, epoch, done):
        """Iterates over the batches of an epoch that are not done yet."""
        strategy = self.execution.strategy
        dataset = self.data(epoch).skip(done)
        return iter(batches.distribute(strategy, dataset))
