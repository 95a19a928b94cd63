"""Streaming metrics that count probabilities in the cells of a histogram."""

from typing import Any
from typing import NamedTuple

from keras import ops

from caltrain_tf.metrics.streaming.base import SumMetric


class Cells(NamedTuple):
    """Sums over the examples of each cell, `(..., cells)`.

    The distance of a probability from the centre of its cell is measured in
    widths of the cell. Distances are small, so that float32 sums of very many
    of them are exact enough.
    """

    count: Any
    hits: Any
    distance: Any
    squared_distance: Any
    distance_of_hits: Any


class CellMetric(SumMetric):
    """A metric whose state is five sums for each of many narrow cells."""

    def add_cells(self, num_cells):
        """Creates the state."""
        self.num_cells = num_cells
        self.add_sums((num_cells, len(Cells._fields)))

    def grid(self):
        """The `histogram.Grid` of the cells."""
        raise NotImplementedError

    def fill(self, cells, values, outcome, weight):
        """The sums over a batch.

        Args:
            cells: The cell of each value, `(n,)`.
            values: Probabilities `(n,)`.
            outcome: 1.0 where the event happened, else 0.0, `(n,)`.
            weight: `(n,)`.
        """
        grid = self.grid()
        distance = values - ops.take(grid.centre, cells)
        distance = distance / ops.take(grid.width, cells)
        weighted_distance = weight * distance
        terms = Cells(
            count=weight,
            hits=weight * outcome,
            distance=weighted_distance,
            squared_distance=weighted_distance * distance,
            distance_of_hits=weighted_distance * outcome,
        )
        return ops.segment_sum(
            ops.stack(terms, axis=-1), cells, num_segments=self.num_cells
        )

    def excess(self, cells):
        """Summed probability minus hits of each cell."""
        grid = self.grid()
        # Not confidence minus hits: of a confident network both are close to
        # the count, and the small differences from it are what matters.
        return (
            (cells.count - cells.hits)
            - cells.count * (1.0 - grid.centre)
            + cells.distance * grid.width
        )
