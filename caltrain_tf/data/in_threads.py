"""A function of one thing after another, with the next ones under way."""

import collections
import concurrent.futures


def in_threads(function, items, num_threads, ahead):
    """Yields what a function returns of each item, in the items' order.

    Args:
        function: Of one item. It should leave most of its work to libraries:
            Python itself runs in one thread at a time.
        items: An iterable. When it raises an error, what was under way comes
            first.
        num_threads: How many calls run at once.
        ahead: The number of results that are kept beyond that.

    Example:
        >>> list(in_threads(lambda x: x * x, [1, 2, 3], num_threads=2, ahead=1))
        [1, 4, 9]
    """
    items = iter(items)
    waiting = collections.deque()
    end = None
    pool = concurrent.futures.ThreadPoolExecutor(num_threads)
    try:
        while end is None or waiting:
            if end is None and len(waiting) < num_threads + ahead:
                try:
                    waiting.append(pool.submit(function, next(items)))
                except BaseException as error:
                    end = error
            else:
                yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
    if not isinstance(end, StopIteration):
        raise end
