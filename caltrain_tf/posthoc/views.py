"""Rows that are changed or chosen while they pass, never as a whole."""

import numpy as np


class View:
    """Rows that are changed, or chosen, block by block while they pass."""

    def __init__(self, rows, change):
        """Takes rows and a function of `(logits, labels, start)`.

        Args:
            rows: `ArrayRows`, `DatasetRows` or a `View`.
            change: Returns the block's logits and labels as they shall be.
        """
        self.rows = rows
        self.change = change
        self.num_classes = rows.num_classes

    def map(self, function):
        """As `ArrayRows.map`, without empty blocks."""
        results = self.rows.map(
            lambda *block: [function(*part) for part in self._changed(*block)]
        )
        return [result for part in results for result in part]

    def blocks(self):
        """As `ArrayRows.blocks`, without empty blocks."""
        for block in self.rows.blocks():
            yield from self._changed(*block)

    def fold(self, index, num_folds, held_out):
        """As `ArrayRows.fold`."""
        return View(self, chooser(index, num_folds, held_out))

    def _changed(self, logits, labels, start):
        logits, labels = self.change(logits, labels, start)
        if len(labels):
            yield logits, labels, start


def chooser(index, num_folds, held_out):
    """A function for `View` that passes on a fold, or all the others."""

    def choose(logits, labels, start):
        fold = (start + np.arange(len(labels))) % num_folds
        chosen = (fold == index) == held_out
        return logits[chosen], labels[chosen]

    return choose
