"""Global batches, cut into the parts that the replicas see."""

import tensorflow as tf

from caltrain_tf.training.strategy import is_multi_worker

_OWN_SHARDING = (
    tf.data.experimental.AutoShardPolicy.FILE,
    tf.data.experimental.AutoShardPolicy.DATA,
)


def batch_size(dataset):
    """The static size of the dataset's batches, or None."""
    return tf.nest.flatten(dataset.element_spec)[0].shape[0]


def count_batches(name, dataset, steps):
    """How many batches an epoch takes: `steps`, or all that there are."""
    cardinality = int(dataset.cardinality())
    if steps is None:
        if cardinality < 1:
            raise ValueError(
                f"How many batches `{name}` has is not known, or there are "
                f"none or no end. Pass `{name}_steps`. "
                f"Received: cardinality={cardinality}"
            )
        return cardinality
    if steps < 1 or 0 <= cardinality < steps:
        raise ValueError(
            f"`{name}_steps` must be between 1 and the number of batches. "
            f"Received: {name}_steps={steps}, batches={cardinality}"
        )
    return steps


def check_training_batches(strategy, dataset):
    """Raises where replicas would get unequal parts of a global batch."""
    replicas = strategy.num_replicas_in_sync
    size = batch_size(dataset)
    if replicas > 1 and (size is None or size % replicas):
        raise ValueError(
            "With several replicas, every training batch must have the same "
            "size, a multiple of their number: "
            "`dataset.batch(size, drop_remainder=True)`. "
            f"Received: batch size={size}, replicas={replicas}"
        )


def distribute(strategy, dataset, in_order=False):
    """Hands each replica its contiguous part of every global batch.

    Replica r of R gets rows r B/R to (r+1) B/R, so that nothing is reordered
    and the global batch is the dataset's, on however many machines. For that
    every machine makes the whole batch. Where this is too much, a dataset whose
    options ask for `AutoShardPolicy.FILE` or `DATA` is left to TensorFlow: each
    machine then reads its own part, and which rows meet in a batch may change.

    Args:
        strategy: The strategy.
        dataset: Global batches, with several replicas of a static size.
        in_order: Whether to pass over such options.

    Returns:
        A distributed dataset.
    """
    policy = dataset.options().experimental_distribute.auto_shard_policy
    shards_itself = policy in _OWN_SHARDING and not in_order
    if is_multi_worker(strategy) and shards_itself:
        return strategy.experimental_distribute_dataset(dataset)
    replicas = strategy.num_replicas_in_sync
    if replicas == 1:
        return strategy.distribute_datasets_from_function(
            lambda context: dataset.prefetch(tf.data.AUTOTUNE)
        )
    rows = batch_size(dataset) // replicas

    def part_of_worker(context):
        local = replicas // context.num_input_pipelines
        first = context.input_pipeline_id * local

        def cut(tensor):
            part = tensor[first * rows : (first + local) * rows]
            return tf.reshape(part, [local, rows, *tensor.shape[1:]])

        parts = dataset.map(
            lambda *batch: tf.nest.map_structure(cut, batch),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
        return parts.unbatch().prefetch(tf.data.AUTOTUNE)

    return strategy.distribute_datasets_from_function(part_of_worker)


def pad(strategy, dataset):
    """Makes every batch `(x, y, weight)` of one size, padding with weight 0.

    Args:
        strategy: The strategy among whose replicas batches are cut.
        dataset: Batches `x`, `(x, y)` or `(x, y, weight)`, of which the first
            is the largest. Without labels, `y` is zeros.

    Returns:
        The padded dataset.
    """
    size = batch_size(dataset)
    if size is None:
        first = next(iter(dataset.take(1)), None)
        if first is None:
            raise ValueError("`dataset` must not be empty. Received: no batch")
        size = int(tf.shape(tf.nest.flatten(first)[0])[0])
    replicas = strategy.num_replicas_in_sync
    size = -(-size // replicas) * replicas

    def pad_batch(*batch):
        x, y, weight = _unpack(batch)

        def pad_rows(tensor):
            missing = size - tf.shape(tensor)[0]
            widths = [[0, missing]] + [[0, 0]] * (tensor.shape.rank - 1)
            return tf.ensure_shape(
                tf.pad(tensor, widths), [size, *tensor.shape[1:]]
            )

        return tf.nest.map_structure(pad_rows, (x, y, weight))

    return dataset.map(pad_batch, num_parallel_calls=tf.data.AUTOTUNE)


def _unpack(batch):
    x = batch[0]
    rows = tf.shape(tf.nest.flatten(x)[0])[:1]
    y = batch[1] if len(batch) > 1 else tf.zeros(rows, tf.int64)
    weight = batch[2] if len(batch) > 2 else tf.ones(rows)
    return x, y, tf.reshape(tf.cast(weight, tf.float32), [-1])
