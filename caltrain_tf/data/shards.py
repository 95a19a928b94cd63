"""The rows of a global batch that fall to one of several processes."""

import numbers


def rows_of_shard(batch_size, shard):
    """Returns which rows of each global batch a process takes.

    They are consecutive, so that the processes' rows in the order of their
    indices make up the global batch.

    Args:
        batch_size: Of the global batch.
        shard: (index, count), the process and the number of processes.

    Returns:
        A `range`.

    Example:
        >>> rows_of_shard(512, (1, 2))
        range(256, 512)
    """
    index, count = shard
    if not 0 <= index < count:
        raise ValueError(
            "`shard` must be (index, count) with 0 <= index < count. "
            f"Received: shard={shard}"
        )
    is_integer = isinstance(batch_size, numbers.Integral)
    if not is_integer or batch_size < 1 or batch_size % count:
        raise ValueError(
            "`batch_size` must be an integer >= 1 and a multiple of the "
            f"number of shards, {count}. Received: batch_size={batch_size!r}"
        )
    size = batch_size // count
    return range(index * size, (index + 1) * size)
