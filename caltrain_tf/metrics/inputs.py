"""Checks the arrays that metrics take and brings them into one form.

After `read`, metrics see examples with K >= 2 predicted classes, a class id and
optionally a weight. It is the only place that handles other shapes:

| `probs` | meaning | `labels` | `sample_weight` |
|---|---|---|---|
| `(..., K)`, K >= 2 | K classes | ids `(...)` or one-hot `(..., K)` | `(...)` |
| `(N,)`, `(..., 1)` | class 1 of two classes | 0/1 `(...)` | `(...)` |
| `(..., L)`, `multi_label=True` | L binary problems | 0/1 `(..., L)` | both |

Every error names the argument and the first example that is wrong. Values are
checked block by block, in the same pass in which a metric reads a block anyway:
several passes over rows that are in the cache cost little more than one, no
temporary is as large as the input, and threads share the blocks.
"""

import contextlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from caltrain_tf import checks

# Large enough that the cost of calls and thread switches does not matter, small
# enough for a cache: half or twice the size takes 1.1 to 1.3 times as long.
BLOCK_BYTES = 4 * 1024 * 1024
# Below this, starting threads takes longer than they save.
SMALLEST_THREADED_BYTES = 4 * 1024 * 1024
# The same for threads that have been started already.
SMALLEST_POOLED_BYTES = 1024 * 1024
_of_this_thread = threading.local()
# NumPy reduces short rows one by one. Up to this many classes it is faster to
# transpose a block and to reduce whole columns.
LONGEST_SHORT_ROW = 48
# Its exponential is 0, and products with it are finite.
LOWEST_LOGIT = -1e4


class Examples(NamedTuple):
    """The result of `read`.

    Attributes:
        predictions: Probabilities, or logits, `(n, K)`; `(n, 1)` for binary
            problems. Not checked yet.
        labels: Class ids `(n,)`.
        counts: Booleans `(n,)`, False where an example does not count; None if
            all count.
        weight: Weights of the examples that count, float64; None if all are 1.
        from_logits: Whether `predictions` are logits.
        shape: The shape `(...)` that the examples had.
        name: Name used for the predictions in error messages.
    """

    predictions: np.ndarray
    labels: np.ndarray
    counts: Any
    weight: Any
    from_logits: bool
    shape: tuple
    name: str

    def map(self, function):
        """Applies `function(block, labels)` to all examples that count.

        Args:
            function: Gets checked predictions `(m, K)`, K >= 2, float32 or
                float64, and class ids `(m,)`. Returns a tuple of arrays `(m,)`.
                It may be called from several threads at once, and must not
                write into the block.

        Returns:
            The arrays of all blocks, joined.
        """

        def checked(block, labels, check):
            check()
            return function(block, labels)

        return self.map_unchecked(checked)

    def map_unchecked(self, function):
        """Like `map`, for a `function(block, labels, check)`.

        The function has to call `check()` before it returns, and may pass it
        the smallest and the largest value of the block if it knows them.
        """

        def of_block(start, stop):
            block = self._block(start, stop)
            return function(*block) if len(block[0]) else None

        num_rows, num_columns = self.predictions.shape
        parts = map_blocks(
            of_block, num_rows, self.predictions.itemsize * num_columns
        )
        parts = [part for part in parts if part is not None]
        return tuple(np.concatenate(part) for part in zip(*parts, strict=True))

    def whole(self):
        """Checked predictions `(n, K >= 2)` and labels of those that count."""
        if self.counts is None and self.predictions.shape[1] > 1:
            self.map(lambda block, labels: ())
            return as_float(self.predictions), self.labels
        block, labels, check = self._block(0, len(self.predictions))
        check()
        return block, labels

    def _block(self, start, stop):
        block, labels = self.predictions[start:stop], self.labels[start:stop]
        rows = None
        if self.counts is not None:
            rows = self.counts[start:stop]
            block, labels = block[rows], labels[rows]
        given = block = as_float(block)
        if block.shape[1] == 1:
            block = two_classes(block[:, 0], self.from_logits)

        def index(row):
            row = start + (row if rows is None else np.flatnonzero(rows)[row])
            return ", ".join(map(str, np.unravel_index(row, self.shape)))

        def check(lowest=None, highest=None):
            if block is not given:
                lowest = highest = None
            check_block(
                given, index, self.from_logits, self.name, lowest, highest
            )

        return block, labels, check


def read(
    probs,
    labels,
    from_logits=False,
    multi_label=False,
    ignore_class=None,
    sample_weight=None,
    name="probs",
    needs_labels=True,
):
    """Returns `Examples` from arguments with the shapes of the table above.

    Args:
        probs: Probabilities, or logits: an array, a tensor, or anything else
            with `__array__`. Not copied.
        labels: Class ids, or one-hot rows.
        from_logits: Whether `probs` holds logits.
        multi_label: Whether each column is a binary problem of its own.
        ignore_class: The label of examples that are ignored.
        sample_weight: Weights, of the examples' shape or of its first axes.
        name: Name used for `probs` in error messages.
        needs_labels: Whether `labels` must not be None.
    """
    from_logits = checks.flag("from_logits", from_logits)
    multi_label = checks.flag("multi_label", multi_label)
    if ignore_class is not None:
        ignore_class = checks.count("ignore_class", ignore_class, -(2**63))
    probs = checks.as_array(name, probs)
    if multi_label or probs.ndim == 1:
        probs = probs[..., None]
    if probs.ndim < 2 or probs.size == 0:
        raise ValueError(
            f"`{name}` must have the shape (examples, classes), with at least "
            f"one of both. Received: {name}.shape={probs.shape}"
        )
    shape, num_classes = probs.shape[:-1], probs.shape[-1]
    probs = probs.reshape(-1, num_classes)
    if from_logits and num_classes > 1:
        # Logits hardly ever pass for probabilities in every row, so that some
        # rows are enough.
        if checks.are_probabilities(as_float(probs[:1000])):
            checks.warn(
                f"`from_logits=True`, but `{name}` looks like probabilities, "
                "as after a softmax. Pass `from_logits=False`, or logits."
            )
    if labels is None and ignore_class is None and not needs_labels:
        ids, counts = np.broadcast_to(np.int64(0), (len(probs),)), None
    else:
        ids, counts = read_labels(labels, shape, num_classes, ignore_class)
    weight = None
    if sample_weight is not None:
        weight = read_weight(sample_weight, shape)
        if not weight.all():
            counts = weight > 0 if counts is None else counts & (weight > 0)
    if counts is not None:
        if not counts.any():
            raise ValueError(
                "`sample_weight` and `ignore_class` must leave an example that "
                f"counts. Received: {len(counts)} examples, none of which does"
            )
        weight = weight if weight is None else weight[counts]
    if weight is not None and np.all(weight == 1):
        weight = None
    return Examples(probs, ids, counts, weight, from_logits, shape, name)


def top_labels(*args, **kwargs):
    """The top-label prediction of each example.

    Args:
        *args: As in `read`.
        **kwargs: As in `read`.

    Returns:
        Confidences `(n,)`, the largest probability of each example, at most 1;
        booleans `(n,)`, whether the predicted class is the label (among equal
        probabilities, the first class is predicted); and weights `(n,)`, or
        None.

    Example:
        >>> confidence, correct, weight = top_labels([0.75, 0.5], [1, 0])
        >>> confidence.tolist(), correct.tolist(), weight
        ([0.75, 0.5], [True, True], None)
    """
    examples = read(*args, **kwargs)

    def of_block(block, labels, check):
        if block.shape[1] <= LONGEST_SHORT_ROW:
            block = np.asfortranarray(block)
        largest, predicted = _largest(block, examples.from_logits, check)
        if examples.from_logits:
            powers = shift_logits(block, largest[:, None])
            confidence = 1 / row_sums(np.exp(powers, out=powers))
        else:
            confidence = largest
        return np.minimum(confidence, 1), predicted == labels

    return *examples.map_unchecked(of_block), examples.weight


def check_predictions(predictions, labels, from_logits=False, name="probs"):
    """Checks predictions `(n, K)` and labels; returns arrays of both.

    Args:
        predictions: Probabilities, or logits.
        labels: Class ids `(n,)`, or one-hot rows `(n, K)`.
        from_logits: Whether `predictions` holds logits.
        name: Name used for the predictions in error messages.

    Returns:
        Predictions `(n, K)`, float32 or float64, and class ids `(n,)`, int64.

    Example:
        >>> probs, ids = check_predictions([[0.9, 0.1]], [[0, 1]])
        >>> ids.tolist()
        [1]
        >>> check_predictions([[0.9, 0.1], [0.9, 0.2]], [0, 1])
        Traceback (most recent call last):
        ...
        ValueError: `probs` must hold ... Received: probs[1] summing to 1.1
    """
    predictions = checks.as_array(name, predictions)
    if predictions.ndim != 2 or predictions.shape[1] < 2:
        raise ValueError(
            f"`{name}` must have the shape (examples, classes) with at least "
            f"2 classes. Received: {name}.shape={predictions.shape}"
        )
    examples = read(predictions, labels, from_logits, name=name)
    predictions, labels = examples.whole()
    return predictions, labels.astype(np.int64, copy=False)


def top_label(predictions, labels, from_logits=False):
    """`top_labels` without weights: confidences and correctness."""
    return top_labels(predictions, labels, from_logits)[:2]


def map_blocks(function, num_rows, row_bytes, block_bytes=None):
    """Calls `function(start, stop)` for consecutive ranges of rows.

    Args:
        function: Called from several threads at once for large inputs.
        num_rows: Number of rows.
        row_bytes: Size of one row, which determines how many rows make a block.
        block_bytes: The size of a block; `BLOCK_BYTES` by default.

    Returns:
        The results of the calls, in the order of the rows. If several calls
        raise an error, that of the first block is raised.

    Example:
        >>> map_blocks(lambda start, stop: stop - start, 5, 4, block_bytes=8)
        [2, 2, 1]
    """
    rows = max(1, (block_bytes or BLOCK_BYTES) // max(1, row_bytes))
    starts = range(0, num_rows, rows)

    def of_block(start):
        return function(start, min(start + rows, num_rows))

    threads = min(available_cores(), len(starts))
    pool = getattr(_of_this_thread, "pool", None)
    smallest = SMALLEST_POOLED_BYTES if pool else SMALLEST_THREADED_BYTES
    if threads < 2 or num_rows * row_bytes < smallest:
        return [of_block(start) for start in starts]
    if pool:
        return list(pool.map(of_block, starts))
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(of_block, starts))


@contextlib.contextmanager
def shared_threads():
    """A context in which calls of `map_blocks` share one pool of threads.

    With many calls for a few megabytes, starting threads for each takes longer
    than they save; sharing them saves a fit up to a quarter of its time. Calls
    from within the pool's threads do not use the pool.
    """
    with ThreadPoolExecutor(available_cores()) as pool:
        _of_this_thread.pool = pool
        try:
            yield
        finally:
            _of_this_thread.pool = None


def available_cores():
    """Returns the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_block(
    block,
    index,
    from_logits=False,
    name="probs",
    lowest=None,
    highest=None,
    remedy="pass `from_logits=True`",
):
    """Raises an error if a row of the block is invalid.

    Args:
        block: Some rows, `(m, K)`, or `(m, 1)` for binary problems.
        index: The index of the block's first row, or a function from a row of
            the block to its index in error messages.
        from_logits: Whether these are logits.
        name: Name used for the predictions in error messages.
        lowest: The smallest value of the block, or a lower bound of it, if it
            is known already.
        highest: The largest value of the block, if it is known already.
        remedy: Advice to a user whose probabilities are logits.
    """
    # NaN propagates through min, max and sum, and all comparisons are false.
    low = block.min() if lowest is None else lowest
    high = block.max() if highest is None else highest
    if from_logits:
        if np.isfinite(low) and np.isfinite(high):
            return
    elif low >= -checks.ROUNDING and high <= 1 + checks.ROUNDING:
        if block.shape[1] == 1:
            return
        sums = row_sums(block)
        if (
            sums.min() >= 1 - checks.SUM_TOLERANCE
            and sums.max() <= 1 + checks.SUM_TOLERANCE
        ):
            return
    for row, values in enumerate(block.astype(np.float64)):
        problem = _problem_of(values, from_logits)
        if problem:
            expected, received = problem
            if not from_logits:
                expected += f". If they are logits, {remedy}"
            row = index(row) if callable(index) else index + row
            raise ValueError(
                f"`{name}` must hold {expected}. "
                f"Received: {name}[{row}] {received}"
            )


def as_float(predictions):
    """Predictions as float32 or float64, not copied if they are either.

    Accelerators return half precision; integers are exact ones and zeros.
    """
    if predictions.dtype in (np.float32, np.float64):
        return predictions
    return predictions.astype(np.float32)


def two_classes(predictions, from_logits):
    """`[1 - p, p]` of probabilities `(m,)` of class 1, `[0, z]` of logits."""
    columns = np.empty((2, len(predictions)), predictions.dtype)
    if from_logits:
        columns[0], columns[1] = 0, predictions
    else:
        np.clip(predictions, 0, 1, out=columns[1])
        np.subtract(1, columns[1], out=columns[0])
    return columns.T


def shift_logits(logits, largest=None):
    """Logits minus the largest of their row, at least `LOWEST_LOGIT`."""
    if largest is None:
        largest = logits.max(axis=1, keepdims=True)
    with np.errstate(over="ignore"):
        shifted = logits - largest
    return np.maximum(shifted, LOWEST_LOGIT, out=shifted)


def softmax(shifted):
    """Probabilities of logits whose largest is 0; overwrites them."""
    powers = np.exp(shifted, out=shifted)
    return np.divide(powers, row_sums(powers)[:, None], out=powers)


def row_sums(block):
    """Like `sum(axis=1)`, but three times as fast for short rows."""
    return np.einsum("ij->i", block)


def read_labels(labels, shape, num_classes, ignore_class):
    """Class ids `(n,)`, and whether each counts, `(n,)`; None if all do."""
    labels = checks.as_array("labels", labels)
    if labels.shape == (*shape, 1):
        labels = labels[..., 0]
    if labels.shape == (*shape, num_classes):
        if ignore_class is not None:
            raise ValueError(
                "`ignore_class` must be None if `labels` are one-hot rows. "
                f"Received: ignore_class={ignore_class}"
            )
        return _ids_of_one_hot(labels, shape), None
    if labels.shape != shape:
        ids = str(shape).replace(",)", ")").strip("()")
        rows = "" if num_classes == 1 else f" or one-hot rows ({ids}, "
        rows += f"{num_classes})" if rows else ""
        raise ValueError(
            f"`labels` must hold class ids ({ids},){rows}, one for each "
            f"prediction. Received: labels.shape={labels.shape}"
        )
    labels = labels.reshape(-1)
    counts = None if ignore_class is None else labels != ignore_class
    last = max(num_classes, 2) - 1
    with np.errstate(invalid="ignore"):
        valid = (labels >= 0) & (labels <= last)
        if labels.dtype.kind == "f":
            valid &= labels == np.floor(labels)
    if counts is not None:
        valid |= ~counts
    if not valid.all():
        row = int(np.argmin(valid))
        index = ", ".join(map(str, np.unravel_index(row, shape)))
        raise ValueError(
            f"`labels` must hold class ids from 0 to {last}. "
            f"Received: labels[{index}]={labels[row]}"
        )
    if labels.dtype.kind == "i":
        return labels, counts
    if counts is not None:
        labels = np.where(counts, labels, 0)
    return labels.astype(np.int64), counts


def _ids_of_one_hot(labels, shape):
    labels = labels.reshape(-1, labels.shape[-1])
    ids = np.argmax(labels, axis=1)
    valid = np.take_along_axis(labels, ids[:, None], axis=1)[:, 0] == 1
    valid &= np.count_nonzero(labels, axis=1) == 1
    if not valid.all():
        row = int(np.argmin(valid))
        index = ", ".join(map(str, np.unravel_index(row, shape)))
        raise ValueError(
            "`labels` must hold one-hot rows, or class ids. If rows hold any "
            "number of labels, pass `multi_label=True`. "
            f"Received: labels[{index}]={labels[row].tolist()}"
        )
    return ids


def read_weight(sample_weight, shape):
    """Weights `(n,)`, float64."""
    weight = checks.as_array("sample_weight", sample_weight)
    if weight.shape == (*shape, 1):
        weight = weight[..., 0]
    fits = weight.ndim <= len(shape) and all(
        size == wanted or (axis and size == 1)
        for axis, (size, wanted) in enumerate(
            zip(weight.shape, shape, strict=False)
        )
    )
    if not fits:
        raise ValueError(
            "`sample_weight` must have the shape of the examples, "
            f"{shape}, or of their first axes. "
            f"Received: sample_weight.shape={weight.shape}"
        )
    with np.errstate(invalid="ignore"):
        valid = (weight >= 0) & np.isfinite(weight)
    if not np.all(valid):
        index = np.unravel_index(np.argmin(valid), weight.shape)
        raise ValueError(
            "`sample_weight` must hold finite numbers that are not negative. "
            f"Received: sample_weight[{', '.join(map(str, index))}]="
            f"{weight[index]}"
        )
    weight = weight.reshape(weight.shape + (1,) * (len(shape) - weight.ndim))
    return np.broadcast_to(weight, shape).reshape(-1).astype(np.float64)


def _problem_of(row, from_logits):
    """What a row should hold and what it holds; None if it is valid."""
    not_finite = ~np.isfinite(row)
    if not_finite.any():
        column = int(np.argmax(not_finite))
        return "finite values", f"with {row[column]} in column {column}"
    if from_logits:
        return None
    if row.min() < -checks.ROUNDING or row.max() > 1 + checks.ROUNDING:
        return (
            "probabilities in [0, 1]",
            f"from {row.min():g} to {row.max():g}",
        )
    if len(row) > 1 and abs(row.sum() - 1) > checks.SUM_TOLERANCE:
        return (
            f"probabilities that sum to 1 within {checks.SUM_TOLERANCE:g}",
            f"summing to {row.sum():g}",
        )
    return None


def _largest(block, from_logits, check):
    """The largest value of each row, and the first class that has it."""
    if not from_logits:
        # The bits of nonnegative numbers sort like integers, those of negative
        # numbers above them, and those of NaN above 1: one pass finds the
        # largest value and shows that no probability is negative.
        integers = np.dtype(f"u{block.itemsize}")
        bits, predicted = _largest_of_rows(block.view(integers))
        largest = bits.view(block.dtype)
        highest = bits.max()
        if highest <= np.ones(1, block.dtype).view(integers)[0]:
            check(0.0, largest.max())
            return largest, predicted
    largest, predicted = _largest_of_rows(block)
    check(None, largest.max())
    return largest, predicted


def _largest_of_rows(block):
    if block.flags.c_contiguous or block.shape[1] > LONGEST_SHORT_ROW:
        predicted = block.argmax(axis=1)
        largest = np.take_along_axis(block, predicted[:, None], axis=1)
        return largest[:, 0], predicted
    columns = block.T
    largest = columns.max(axis=0)
    predicted = np.zeros(len(block), np.uint8)
    # From the last class to the first, so that ties go to the first.
    for k in range(len(columns) - 1, -1, -1):
        predicted[columns[k] == largest] = k
    return largest, predicted
