"""Logits and labels that are gone through in blocks, as often as needed.

A calibrator sees its data only through `ArrayRows` or `DatasetRows`, so that
logits in memory, in a memory-mapped file and in a `tf.data.Dataset` are fitted
by the same code, and only a block of them needs to be in memory at a time.
"""

import numpy as np
import tensorflow as tf

from caltrain_tf.metrics.blocks import map_blocks
from caltrain_tf.metrics.inputs import as_labels
from caltrain_tf.metrics.inputs import as_predictions
from caltrain_tf.posthoc.views import View
from caltrain_tf.posthoc.views import chooser

# What one core works on at a time. Fits into an L2 cache of 2 MiB with one
# temporary, and is large enough for NumPy's cost of a call not to matter.
CACHE_BLOCK_BYTES = 1024 * 1024
# What is handed to a matrix product, which uses all cores by itself.
MATRIX_BLOCK_BYTES = 16 * 1024 * 1024
# Logits of which copies may be kept.
SMALL_BYTES = 16 * 1024 * 1024


def as_rows(logits, labels=None):
    """Arrays, or a dataset of `(logits, labels)` batches, as rows.

    Values are not looked at here but in the first pass over the rows.
    """
    if isinstance(logits, tf.data.Dataset):
        if labels is not None:
            raise ValueError(
                "`labels` must be left out when `logits` is a dataset, whose "
                f"batches hold them. Received: labels={type(labels).__name__}"
            )
        return DatasetRows(logits).in_memory_if_small()
    if labels is None:
        raise ValueError(
            "`labels` must be given unless `logits` is a `tf.data.Dataset` of "
            "(logits, labels) batches. Received: labels=None"
        )
    logits = as_predictions(logits, "logits")
    return ArrayRows(logits, as_labels(labels, *logits.shape))


class ArrayRows:
    """Rows of arrays, which may be memory-mapped."""

    def __init__(self, logits, labels):
        """Takes logits `(N, K)` and class ids `(N,)`."""
        self.logits = logits
        self.labels = labels
        self.num_classes = logits.shape[1]

    def map(self, function):
        """Calls `function(logits, labels, start)` on blocks, on all cores.

        Returns:
            What the calls returned, in the order of the rows.
        """
        logits, labels = self.logits, self.labels
        return map_blocks(
            lambda i, j: function(logits[i:j], labels[i:j], i),
            len(logits),
            logits.itemsize * self.num_classes,
            CACHE_BLOCK_BYTES,
        )

    def blocks(self):
        """Yields large blocks `(logits, labels, start)`, one at a time."""
        row_bytes = self.logits.itemsize * self.num_classes
        step = max(1, MATRIX_BLOCK_BYTES // row_bytes)
        for i in range(0, len(self.logits), step):
            yield self.logits[i : i + step], self.labels[i : i + step], i

    def sample(self, num_rows):
        """About `num_rows` rows, evenly spread: data may be sorted by class."""
        step = max(1, len(self.logits) // num_rows)
        if step == 1:
            return self
        return ArrayRows(
            np.ascontiguousarray(self.logits[::step]), self.labels[::step]
        )

    def mapped(self, function):
        """Rows with a function applied to the logits, at once if they fit."""
        if self.logits.nbytes <= SMALL_BYTES:
            return ArrayRows(function(self.logits), self.labels)
        return View(self, lambda logits, labels, _: (function(logits), labels))

    def fold(self, index, num_folds, held_out):
        """Every n-th row, or all the others: for cross-validation."""
        choose = chooser(index, num_folds, held_out)
        if self.logits.nbytes <= SMALL_BYTES:
            return ArrayRows(*choose(self.logits, self.labels, 0))
        return View(self, choose)


class DatasetRows:
    """Rows of a `tf.data.Dataset`, read anew in every pass."""

    def __init__(self, dataset):
        """Takes a dataset of `(logits, labels)` batches."""
        spec = dataset.element_spec
        if not isinstance(spec, tuple) or len(spec) != 2:
            raise ValueError(
                "`logits` must be a dataset of (logits, labels) batches. "
                f"Received: element_spec={spec}"
            )
        self.dataset = dataset
        first = next(self._batches(), None)
        if first is None:
            raise ValueError(
                "`logits` must be a dataset of at least one batch. "
                "Received: an empty dataset"
            )
        self.num_classes = first[0].num_classes

    def in_memory_if_small(self):
        """`ArrayRows` if they take little memory, else these rows."""
        parts, size = [], 0
        for rows, _ in self._batches():
            parts.append(rows)
            size += rows.logits.nbytes
            if size > SMALL_BYTES:
                return self
        return _joined(parts)

    def map(self, function):
        """As `ArrayRows.map`."""
        results = []
        for rows, start in self._batches():
            results += rows.map(
                lambda logits, labels, i, start=start: function(
                    logits, labels, start + i
                )
            )
        return results

    def blocks(self):
        """As `ArrayRows.blocks`."""
        for rows, start in self._batches():
            for logits, labels, i in rows.blocks():
                yield logits, labels, start + i

    def sample(self, num_rows):
        """The first `num_rows` rows, in whole batches."""
        parts = []
        for rows, start in self._batches():
            parts.append(rows)
            if start + len(rows.logits) >= num_rows:
                break
        return _joined(parts)

    def mapped(self, function):
        """Rows with a function applied to the logits."""
        return View(self, lambda logits, labels, _: (function(logits), labels))

    def fold(self, index, num_folds, held_out):
        """As `ArrayRows.fold`; the order must be the same in every pass."""
        return View(self, chooser(index, num_folds, held_out))

    def _batches(self):
        start = 0
        for number, (logits, labels) in enumerate(
            self.dataset.as_numpy_iterator()
        ):
            try:
                logits = as_predictions(logits, "logits")
                rows = ArrayRows(logits, as_labels(labels, *logits.shape))
            except ValueError as error:
                raise ValueError(f"In batch {number}: {error}") from error
            yield rows, start
            start += len(logits)


def _joined(parts):
    return ArrayRows(
        np.concatenate([part.logits for part in parts]),
        np.concatenate([part.labels for part in parts]),
    )
