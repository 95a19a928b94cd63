"""Several steps inside one `tf.function`, over all replicas."""

import tensorflow as tf

from caltrain_tf.training import batches
from caltrain_tf.training.strategy import is_multi_worker


class NonFiniteLossError(ArithmeticError):
    """The loss became NaN or infinite; says at which step, and the parts."""


class Execution:
    """Runs `Steps` on every replica of a strategy.

    Args:
        strategy: The strategy.
        steps: The `Steps`.
    """

    def __init__(self, strategy, steps):
        """Wraps the steps in graph functions."""
        self.strategy = strategy
        self.steps = steps
        self.names = steps.objective.names
        # AutoGraph is for the loop over steps alone, as in Keras: to convert
        # losses and metrics would take seconds before the first step.
        self._train = tf.autograph.experimental.do_not_convert(steps.train)
        self.train_steps = tf.function(self._train_steps)
        self._evaluate_batch = tf.function(
            self._evaluate_batch, autograph=False
        )
        self._predict_batch = tf.function(self._predict_batch, autograph=False)

    def train(self, iterator, num_steps, first_step):
        """Takes `num_steps` steps, and looks at their losses once.

        Args:
            iterator: Of a distributed dataset.
            num_steps: How many batches to take from it.
            first_step: The number of the first of these steps, for the error.

        Returns:
            The sums of the terms over the steps, as a dictionary.
        """
        sums, bad_index, bad_terms = self.train_steps(
            iterator, tf.constant(num_steps)
        )
        bad_index = int(bad_index)
        if bad_index >= 0:
            parts = ", ".join(
                f"{name}={value}"
                for name, value in self._named(bad_terms).items()
            )
            raise NonFiniteLossError(
                f"The loss is not finite at step {first_step + bad_index}: "
                f"{parts}. No checkpoint was written since."
            )
        return self._named(sums)

    def evaluate(self, dataset):
        """The weighted means of the loss and its parts over a dataset."""
        # Read at the end: until then batches run without waiting.
        sums = [self._evaluate_batch(batch) for batch in self._padded(dataset)]
        sums = tf.reduce_sum(tf.cast(tf.stack(sums), tf.float64), axis=0)
        sums = sums.numpy()
        names = [name for name in self.names if name != "l2_loss"]
        if not sums[-1] > 0:
            raise ValueError(
                "The weights of an evaluation must not all be 0. "
                f"Received: sum of weights={sums[-1]}"
            )
        means = (sums[:-1] / sums[-1]).tolist()
        return dict(zip(names, means, strict=True))

    def predict(self, dataset):
        """Yields outputs, labels and weights of each batch, in order."""
        for batch in self._padded(dataset):
            outputs = self._predict_batch(batch)
            yield [self._collect(value) for value in (outputs, *batch[1:])]

    def _padded(self, dataset):
        padded = batches.pad(self.strategy, dataset)
        return batches.distribute(self.strategy, padded, in_order=True)

    def _train_steps(self, iterator, num_steps):
        sums = tf.zeros(len(self.names))
        bad_terms = tf.zeros(len(self.names))
        bad_index = tf.constant(-1)
        for index in tf.range(num_steps):
            per_replica = self.strategy.run(self._train, args=next(iterator))
            terms = self.strategy.reduce("SUM", per_replica, axis=None)
            finite = tf.reduce_all(tf.math.is_finite(terms))
            first_bad = tf.logical_and(bad_index < 0, tf.logical_not(finite))
            bad_index = tf.where(first_bad, index, bad_index)
            bad_terms = tf.where(first_bad, terms, bad_terms)
            sums += terms
        return sums, bad_index, bad_terms

    def _evaluate_batch(self, batch):
        per_replica = self.strategy.run(self.steps.evaluate, args=batch)
        return self.strategy.reduce("SUM", per_replica, axis=None)

    def _predict_batch(self, batch):
        return self.strategy.run(self.steps.predict, args=batch[:1])

    def _collect(self, value):
        if is_multi_worker(self.strategy):
            return self.strategy.gather(value, axis=0).numpy()
        local = self.strategy.experimental_local_results(value)
        return tf.concat(local, axis=0).numpy()

    def _named(self, terms):
        return dict(zip(self.names, terms.numpy().tolist(), strict=True))


def metric_values(metrics):
    """The values of Keras metrics by their names."""
    return {metric.name: float(metric.result()) for metric in metrics}
