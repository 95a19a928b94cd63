"""The last stage of every input pipeline."""

import tensorflow as tf


def finished(dataset, finish, ahead=tf.data.AUTOTUNE):
    """Changes each batch, and keeps some ready.

    Args:
        dataset: Of batches in a fixed order.
        finish: A function of a batch's parts; `None` leaves them as they are.
        ahead: The number of batches that are made while others are in use.

    Returns:
        A dataset of what `finish` returns.

    Example:
        >>> dataset = tf.data.Dataset.range(3)
        >>> [int(x) for x in finished(dataset, lambda x: x + 4)]
        [4, 5, 6]
    """
    options = tf.data.Options()
    options.deterministic = True
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.OFF
    )
    # The thread that tunes often misses that its iterator is gone. Everyone
    # then waits for its next turn: up to as long as the iterator lived, or a
    # minute.
    options.autotune.enabled = False
    if finish is not None:
        dataset = dataset.map(finish, num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.prefetch(ahead).with_options(options)
