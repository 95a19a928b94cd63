"""Work over row blocks that stay in cache, on all cores.

A pass over an array that does not fit into the cache costs what the memory
costs. Several passes over a block that does fit cost little more than one, and
no temporary is ever as large as the input. NumPy releases Python's lock inside
its loops, so that threads are enough to use every core.
"""

import itertools
import os
import threading

# Half of a usual L2 cache of 1 MiB, so that a block and its temporaries fit.
BLOCK_BYTES = 512 * 1024
# Below this, starting threads takes longer than they save.
SMALLEST_THREADED_BYTES = 4 * 1024 * 1024


def map_blocks(function, num_rows, row_bytes, block_bytes=BLOCK_BYTES):
    """Calls `function(start, stop)` for consecutive ranges of rows.

    Args:
        function: Called from several threads at once for large inputs.
        num_rows: How many rows there are.
        row_bytes: The size of one row, which says how many make a block.
        block_bytes: The size of a block.

    Returns:
        What the calls returned, in the order of the rows. If calls raised, the
        error of the first of their blocks is raised.

    Example:
        >>> map_blocks(lambda start, stop: stop - start, 5, 4, block_bytes=8)
        [2, 2, 1]
    """
    rows = max(1, block_bytes // max(1, row_bytes))
    starts = range(0, num_rows, rows)
    threads = min(available_cores(), len(starts))
    if threads < 2 or num_rows * row_bytes < SMALLEST_THREADED_BYTES:
        return [function(i, min(i + rows, num_rows)) for i in starts]
    results = [None] * len(starts)
    errors = {}
    # Blocks are handed out in order. When one fails, all before it have been
    # taken by then, so that the first error is always found.
    ticket = itertools.count()

    def work():
        while not errors:
            index = next(ticket)
            if index >= len(starts):
                return
            start = starts[index]
            try:
                results[index] = function(start, min(start + rows, num_rows))
            except BaseException as error:
                errors[index] = error

    helpers = [threading.Thread(target=work) for _ in range(threads - 1)]
    for helper in helpers:
        helper.start()
    work()
    for helper in helpers:
        helper.join()
    if errors:
        raise errors[min(errors)]
    return results


def available_cores():
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
