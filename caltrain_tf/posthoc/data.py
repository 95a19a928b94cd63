"""The data that calibrators are fitted to: arrays, memory maps and streams.

A calibrator reads its data only through `Rows` or `Stream`, block by block and
as often as it needs. Whatever the shape of the predictions (`flatten`), a block
holds logits `(n, K)`, class ids `(n,)` and weights `(n,)` or None, and only one
block is converted at a time.
"""

import sys

import numpy as np

from caltrain_tf import checks
from caltrain_tf.inputs import (
    SMALLEST_CALIBRATED,
    as_float,
    check_block,
    map_blocks,
    read_labels,
    read_weight,
    two_classes,
)

# Size of the block that one core works on. It fits into an L2 cache of 2 MiB
# with one temporary, and is large enough for the cost of calls not to matter.
CACHE_BLOCK_BYTES = 1024 * 1024
# Size of the block of a matrix product, which uses all cores by itself.
MATRIX_BLOCK_BYTES = 16 * 1024 * 1024
# Largest size of predictions of which copies may be kept.
SMALL_BYTES = 16 * 1024 * 1024
# Smallest number of binary logits in [0, 1] that is worth a warning.
FEWEST_ODD = 10


def read(
    logits,
    labels=None,
    sample_weight=None,
    *,
    from_probs=False,
    multi_label=False,
    ignore_class=None,
):
    """Returns arrays, or a stream of batches, as rows to fit to.

    Values are not checked here, but in a pass with `check=True`.

    Args:
        logits: As `Calibrator.fit` takes them.
        labels: Likewise.
        sample_weight: Likewise.
        from_probs: Whether the predictions are probabilities.
        multi_label: Whether the last axis holds independent binary problems.
        ignore_class: The label of examples that are ignored.

    Returns:
        `Rows`, or a `Stream` if the data should not be held in memory.
    """
    options = (from_probs, multi_label, ignore_class)
    if labels is not None and not is_dataset(logits):
        rows = _read_arrays(logits, labels, sample_weight, *options)
        if rows.weights is not None and rows.weights.any():
            # Only ratios matter, and large weights could overflow float32.
            rows.weights = rows.weights / rows.weights.max()
        return rows
    for name, value in (("labels", labels), ("sample_weight", sample_weight)):
        if value is not None:
            raise ValueError(
                f"`{name}` must be left out when `logits` is a dataset, whose "
                f"batches hold them. Received: {name}={type(value).__name__}"
            )
    is_stream = hasattr(logits, "__iter__") and not hasattr(logits, "__array__")
    if not is_stream or isinstance(logits, (str, bytes, dict)):
        raise ValueError(
            "`labels` must be given unless `logits` is a `tf.data.Dataset`, or "
            "another iterable, of (logits, labels) batches. "
            f"Received: labels=None, logits={type(logits).__name__}"
        )
    if iter(logits) is logits:
        raise ValueError(
            "`logits` must be an iterable that can be read several times, such "
            f"as a dataset or a list. Received: {type(logits).__name__}"
        )

    def read_batch(logits, labels, sample_weight=None):
        return _read_arrays(logits, labels, sample_weight, *options)

    stream = Stream(logits, read_batch)
    return stream.in_memory_if_small()


def is_dataset(values):
    """Whether it is a `tf.data.Dataset`, without importing TensorFlow."""
    tensorflow = sys.modules.get("tensorflow")
    return tensorflow is not None and isinstance(
        values, tensorflow.data.Dataset
    )


def flatten(predictions, multi_label=False, name="logits"):
    """Predictions of any shape as a view `(n, K)`, or `(n, 1)` if binary.

    Args:
        predictions: `(..., K)`; binary `(N,)` or `(..., 1)`; with
            `multi_label=True` `(..., L)`.
        multi_label: Whether the last axis holds independent binary problems.
        name: Name used for `predictions` in error messages.

    Returns:
        The flat array, and the shape of the predictions.

    Example:
        >>> flatten(np.zeros((8, 4, 4, 21)))[0].shape
        (128, 21)
        >>> flatten(np.zeros((8, 5)), multi_label=True)[0].shape
        (40, 1)
    """
    # bfloat16 is converted in blocks; a whole batch would double the memory.
    if getattr(getattr(predictions, "dtype", None), "name", "") != "bfloat16":
        predictions = checks.as_array(name, predictions)
    predictions = np.asarray(predictions)
    shape = predictions.shape
    if not shape or 0 in shape:
        raise ValueError(
            f"`{name}` must have the shape (..., classes) with at least one "
            f"row. Received: {name}.shape={shape}"
        )
    width = 1 if multi_label or len(shape) == 1 else shape[-1]
    return predictions.reshape(-1, width), shape


def to_logits(values, from_probs=False, index=None):
    """Some rows of `flatten` as logits `(n, K)` of float32 or float64.

    Args:
        values: `(n, K)`, or `(n, 1)`, which become [0, z] or [1 - p, p].
        from_probs: Whether they are probabilities. Those below
            `SMALLEST_CALIBRATED` are raised to it.
        index: To check values, the number of the first row, or a function from
            a row to its number, for error messages; otherwise None.
    """
    values = as_float(values)
    if index is not None:
        remedy = "construct the calibrator without `from_probs=True`"
        check_block(values, index, not from_probs, "logits", remedy=remedy)
    if values.shape[1] == 1:
        values = two_classes(values[:, 0], not from_probs)
        values = np.ascontiguousarray(values)
    if from_probs:
        return np.log(np.maximum(values, SMALLEST_CALIBRATED))
    return values


def look_odd(values):
    """Whether rows of `flatten` look like probabilities instead of logits."""
    if values.shape[1] == 1:
        # A few logits may lie in [0, 1] by chance.
        in_range = 0 <= values.min() and values.max() <= 1
        return in_range and len(values) >= FEWEST_ODD
    # The first row is enough to recognise most logits.
    return 0 <= values[0].min() and checks.are_probabilities(values)


def warn_of_probabilities():
    """Warns that probabilities were passed where logits are expected."""
    checks.warn(
        "`logits` look like probabilities: all lie in [0, 1], and those of all "
        "classes sum to 1. Pass logits, or construct the calibrator with "
        "`from_probs=True`."
    )


class Data:
    """Base class of rows and streams of rows."""

    def map(self, function, check=False):
        """Calls `function(logits, labels, weights)` on blocks, on all cores.

        Args:
            function: Called from several threads at once for large inputs.
            check: Whether to raise an error for values that make no sense, and
                to checks.warn of probabilities that should be logits.

        Returns:
            The results of the calls, in the order of the rows.
        """
        return self._collect(self.map_blocks(function, check))

    def sum(self, function, check=False):
        """The sum of the results of `map`, which a stream does not keep."""
        pairs = self.map_blocks(function, check, fold=_sum_of_pairs)
        return np.sum(self._collect(pairs), axis=0)

    def _collect(self, pairs):
        if not pairs:
            raise ValueError(
                "`sample_weight` must have a positive weight, and `labels` one "
                "that is not `ignore_class`. Received: none"
            )
        results, odd = zip(*pairs, strict=True)
        if all(odd):
            warn_of_probabilities()
        return results

    def changed(self, function):
        """The same data with a function applied to the logits."""
        return Changed(self, function)


def _sum_of_pairs(pairs):
    results, odd = zip(*pairs, strict=True)
    return [(np.sum(results, axis=0), all(odd))]


class Rows(Data):
    """Rows of arrays, which may be memory-mapped."""

    def __init__(self, values, labels, weights=None, from_probs=False, start=0):
        """Keeps the arrays.

        Args:
            values: Values of `flatten`.
            labels: Class ids `(n,)`.
            weights: `(n,)`, or None. Rows of weight 0 are never looked at.
            from_probs: Whether `values` holds probabilities.
            start: The number of the first row, for error messages.
        """
        self.values = values
        self.labels = labels
        self.weights = weights
        self.from_probs = from_probs
        self.start = start
        self.num_classes = max(values.shape[1], 2)

    def map_blocks(self, function, check, fold=None):
        """Like `map`, but returns pairs of a result and whether it looks odd.

        A stream replaces the list of pairs by `fold` of it after each batch.
        """
        del fold

        def block(i, j):
            return [
                (function(*part), check and odd)
                for *part, odd in self._block(i, j, check)
            ]

        results = map_blocks(
            block, len(self.values), self._row_bytes(), CACHE_BLOCK_BYTES
        )
        return [result for part in results for result in part]

    def blocks(self):
        """Yields large blocks `(logits, labels, weights)`, one at a time."""
        step = max(1, MATRIX_BLOCK_BYTES // self._row_bytes())
        for i in range(0, len(self.values), step):
            for *block, _ in self._block(i, i + step):
                yield block

    def sample(self, num_rows):
        """About `num_rows` rows, evenly spread: data may be sorted by class."""
        chosen = np.arange(len(self.values))
        if self.weights is not None:
            chosen = np.flatnonzero(self.weights)
        step = max(1, len(chosen) // num_rows)
        return self if step == 1 else self._take(chosen[::step])

    def folds(self, num_folds, seed=0):
        """Yields pairs of the rows outside a fold and the rows of the fold.

        Folds are shuffled, and have the same shares of the classes.
        """
        labels = self.labels[self.count]
        order = np.random.default_rng(seed).random(len(labels))
        fold = np.full(len(self.labels), -1)
        fold[self.count] = deal(labels, order, num_folds)
        for i in range(num_folds):
            yield self.only(fold != i), self.only(fold == i)

    @property
    def count(self):
        """An index of the rows whose weight is not 0."""
        return slice(None) if self.weights is None else self.weights > 0

    def changed(self, function):
        """As `Data.changed`, but applied immediately if the rows are few."""
        if self.values.nbytes > SMALL_BYTES:
            return super().changed(function)
        logits, labels, weights, _ = next(self._block(0, len(self.values)))
        return Rows(function(logits), labels, weights)

    def _block(self, i, j, check=False):
        """Yields the rows from i to j, unless all of them have weight 0."""
        values, labels, weights = self.values[i:j], self.labels[i:j], None
        kept = None
        if self.weights is not None:
            weights = self.weights[i:j]
            if not weights.all():
                kept = np.flatnonzero(weights)
                values, labels = values[kept], labels[kept]
                weights = weights[kept]

        def index(row):
            return self.start + i + (row if kept is None else kept[row])

        if len(labels):
            odd = check and not self.from_probs and look_odd(values)
            logits = to_logits(
                values, self.from_probs, index if check else None
            )
            yield logits, labels, weights, odd

    def only(self, chosen):
        """The chosen rows, as a copy if they are few."""
        if self.values.nbytes <= SMALL_BYTES:
            return self._take(chosen)
        weights = chosen.astype(np.float64)
        if self.weights is not None:
            weights *= self.weights
        return Rows(self.values, self.labels, weights, self.from_probs)

    def _take(self, chosen):
        weights = None if self.weights is None else self.weights[chosen]
        order = "F" if self.values.flags.f_contiguous else "C"
        return Rows(
            np.asarray(self.values[chosen], order=order),
            self.labels[chosen],
            weights,
            self.from_probs,
        )

    def _row_bytes(self):
        return max(self.values.itemsize, 4) * self.num_classes


class Changed(Data):
    """Data with a function applied to the logits of each block."""

    def __init__(self, data, function):
        self.data = data
        self.function = function
        self.num_classes = data.num_classes

    def map_blocks(self, function, check, fold=None):
        """As `Rows.map_blocks`."""
        return self.data.map_blocks(
            lambda logits, *rest: function(self.function(logits), *rest),
            check,
            fold,
        )

    def blocks(self):
        """As `Rows.blocks`."""
        for logits, *rest in self.data.blocks():
            yield self.function(logits), *rest

    def folds(self, num_folds):
        """As `Rows.folds`."""
        for pair in self.data.folds(num_folds):
            yield tuple(part.changed(self.function) for part in pair)


class Stream(Data):
    """Rows that are read again in every pass, one batch at a time."""

    def __init__(self, batches, read_batch, choose=None, num_classes=None):
        """Keeps what is needed to read them.

        Args:
            batches: An iterable of `(logits, labels)` or
                `(logits, labels, sample_weight)`, in any order in each pass.
            read_batch: Function of a batch that returns `Rows`.
            choose: Called at the beginning of a pass; returns a function from
                `Rows` to the chosen rows. By default all rows are chosen.
            num_classes: Number of classes; by default that of the first batch.
        """
        self.batches = batches
        self.read_batch = read_batch
        self.choose = choose
        self.num_classes = num_classes
        if num_classes is None:
            first = next(self._rows(), None)
            if first is None:
                raise ValueError(
                    "`logits` must be a dataset of at least one batch. "
                    "Received: an empty dataset"
                )
            self.num_classes = first.num_classes

    def in_memory_if_small(self):
        """`Rows` if they take little memory, else this stream."""
        parts, size = [], 0
        for rows in self._rows():
            parts.append(rows)
            size += rows.values.nbytes
            if size > SMALL_BYTES:
                return self
        return _joined(parts)

    def map_blocks(self, function, check, fold=None):
        """As `Rows.map_blocks`."""
        results = []
        for rows in self._rows():
            results += rows.map_blocks(function, check)
            if fold is not None and results:
                results = fold(results)
        return results

    def blocks(self):
        """As `Rows.blocks`."""
        for rows in self._rows():
            yield from rows.blocks()

    def sample(self, num_rows):
        """About `num_rows` of the first rows; fewer if they are large."""
        parts, count, size = [], 0, 0
        for rows in self._rows():
            part = rows.sample(num_rows)
            new = len(part.labels[part.count])
            if new:
                parts.append(part)
                count += new
                size += part.values.nbytes
            if count >= num_rows or (count and size >= SMALL_BYTES):
                break
        return _joined(parts)

    def folds(self, num_folds):
        """As `Rows.folds`, whatever the order of the rows in each pass.

        The contents of a row determine its fold, so that nothing leaks from one
        fold to another if a dataset is shuffled again in each pass. Equal rows
        are dealt to the folds in turn.
        """
        parts = [
            (_fingerprints(rows)[rows.count], rows.labels[rows.count])
            for rows in self._rows()
        ]
        keys, labels = map(np.concatenate, zip(*parts, strict=True))
        fold = deal(labels, keys, num_folds)
        order = np.argsort(keys)
        keys, fold = keys[order], fold[order]

        def chooser(index, held_out):
            def begin():
                of_rows = _FoldsOfPass(keys, fold)
                return lambda rows: rows.only(
                    (of_rows(rows) == index) == held_out
                )

            return Stream(
                self.batches, self.read_batch, begin, self.num_classes
            )

        for i in range(num_folds):
            yield chooser(i, held_out=False), chooser(i, held_out=True)

    def _rows(self):
        batches = self.batches
        if is_dataset(batches):
            batches = batches.as_numpy_iterator()
        choose = self.choose() if self.choose else lambda rows: rows
        start = 0
        for number, batch in enumerate(batches):
            try:
                rows = self._read_one(batch)
            except ValueError as error:
                raise ValueError(f"In batch {number}: {error}") from error
            # At most two batches are in memory while the next one is read.
            del batch
            rows.start = start
            start += len(rows.labels)
            rows = choose(rows)
            yield rows

    def _read_one(self, batch):
        if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
            raise ValueError(
                "`logits` must be a dataset of (logits, labels) or (logits, "
                "labels, sample_weight) batches. Received: a batch of type "
                f"{type(batch).__name__}"
            )
        rows = self.read_batch(*batch)
        if self.num_classes not in (None, rows.num_classes):
            raise ValueError(
                f"`logits` must have {self.num_classes} classes, as in the "
                f"first batch. Received: {rows.num_classes} classes"
            )
        return rows


class _FoldsOfPass:
    """The folds of rows that come in any order, each of them once."""

    def __init__(self, keys, fold):
        """Takes the sorted fingerprints of all rows, and their folds."""
        self.keys = keys
        self.fold = fold
        self.seen = np.zeros(len(keys), np.int64)

    def __call__(self, rows):
        """Returns the folds of some rows, `(n,)`; -1 for rows of weight 0."""
        keys = _fingerprints(rows)[rows.count]
        order = np.argsort(keys)
        first = np.searchsorted(self.keys, keys[order])
        # The position of each row among equal rows.
        turn = np.arange(len(keys)) - np.searchsorted(keys[order], keys[order])
        # Rows beyond the last key are unknown, and fail the comparison below.
        first = np.minimum(first, len(self.keys) - 1)
        place = np.minimum(first + self.seen[first] + turn, len(self.keys) - 1)
        if not np.array_equal(self.keys[place], keys[order]):
            raise ValueError(
                "`logits` must be a dataset of the same rows in every pass, "
                "in any order. Received: a row that was not there, or not so "
                "often, in the first pass"
            )
        np.add.at(self.seen, first, 1)
        fold_of_keys = np.empty(len(keys), np.int64)
        fold_of_keys[order] = self.fold[place]
        fold = np.full(len(rows.labels), -1)
        fold[rows.count] = fold_of_keys
        return fold


def _fingerprints(rows):
    """A number for each row that depends only on its contents."""
    words = np.ascontiguousarray(rows.values)
    words = words.view(f"u{words.itemsize}")
    factors = np.random.default_rng(0).integers(
        2**63, size=words.shape[1] + 1, dtype=np.uint64
    )
    parts = map_blocks(
        lambda i, j: words[i:j].astype(np.uint64) @ factors[1:],
        len(words),
        8 * words.shape[1],
    )
    return np.concatenate(parts) + rows.labels.astype(np.uint64) * factors[0]


def deal(labels, order, num_folds):
    """The fold of each row: the rows of each class are dealt in turn."""
    fold = np.empty(len(labels), np.int64)
    fold[np.lexsort((order, labels))] = np.arange(len(labels)) % num_folds
    return fold


def _joined(parts):
    if len(parts) == 1:
        return parts[0]
    weights = None
    if any(part.weights is not None for part in parts):
        weights = np.concatenate(
            [
                np.ones(len(part.labels))
                if part.weights is None
                else part.weights
                for part in parts
            ]
        )
    return Rows(
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.labels for part in parts]),
        weights,
        parts[0].from_probs,
    )


def _read_arrays(
    logits, labels, sample_weight, from_probs, multi_label, ignore_class
):
    values, shape = flatten(logits, multi_label)
    if not multi_label and len(shape) > 1:
        shape = shape[:-1]
    labels, counts = read_labels(labels, shape, values.shape[1], ignore_class)
    weights = None
    if sample_weight is not None:
        weights = read_weight(sample_weight, shape)
    if counts is not None:
        labels = np.where(counts, labels, 0)
        weights = np.where(counts, 1.0 if weights is None else weights, 0.0)
    return Rows(values, labels, weights, from_probs)
