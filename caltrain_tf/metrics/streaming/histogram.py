"""Grids of narrow cells that probabilities of a stream are counted in.

A stream cannot be sorted. It can be counted in cells so narrow that it hardly
matters where in its cell a value lies. Cells are narrower where most
probabilities are: confidences near 1, probabilities of a class near 0 and 1.

All arrays have the cells on their last axis.
"""

import functools
from typing import NamedTuple

import numpy as np
from keras import ops

# Sums over many cells are taken in rows of this length, which is both faster
# and more exact than one after the other.
ROW = 16


class Grid(NamedTuple):
    """Centres and widths of the cells, float32 `(cells,)`."""

    centre: np.ndarray
    width: np.ndarray

    @classmethod
    def between(cls, borders):
        """The grid with these borders, which are one more than the cells."""
        centre = ((borders[1:] + borders[:-1]) / 2).astype("float32")
        # Distances are measured in widths. Where cells are narrower than the
        # spacing of float32, that is the measure.
        width = np.maximum(np.diff(borders), np.spacing(centre))
        return cls(centre, width.astype("float32"))


@functools.cache
def grid_towards_one(num_cells):
    """A grid that is even in sqrt(1 - p)."""
    position = np.linspace(0, 1, num_cells + 1)
    return Grid.between(1 - (1 - position) ** 2)


def cells_towards_one(values, num_cells):
    """The cell of each value in `grid_towards_one`."""
    position = 1.0 - ops.sqrt(ops.maximum(1.0 - values, 0.0))
    return _index(position * num_cells, num_cells)


@functools.cache
def grid_towards_both_ends(num_cells):
    """A grid that is even in the fourth root of the smaller of p and 1 - p."""
    position = np.linspace(0, 1, num_cells + 1)
    smaller = (2 * np.minimum(position, 1 - position)) ** 4 / 2
    return Grid.between(np.where(position < 0.5, smaller, 1 - smaller))


def cells_towards_both_ends(values, num_cells):
    """The cell of each value in `grid_towards_both_ends`."""
    smaller = ops.maximum(ops.minimum(values, 1.0 - values), 0.0)
    position = 0.5 * ops.sqrt(ops.sqrt(2.0 * smaller))
    position = ops.where(values < 0.5, position, 1.0 - position)
    return _index(position * num_cells, num_cells)


@functools.cache
def even_grid(num_cells):
    """A grid that is even in p."""
    return Grid.between(np.linspace(0, 1, num_cells + 1))


def even_cells(values, num_bins, cells_per_bin):
    """The cell of each value, none of which reaches over a bin's edge.

    An edge belongs to the bin above it. A float32 is at least j/num_bins if it
    is at least the first float32 that is.
    """
    exact = np.arange(1, num_bins) / num_bins
    edges = exact.astype("float32")
    edges = np.where(edges < exact, np.nextafter(edges, np.float32(2)), edges)
    bins = ops.zeros_like(values, dtype="int32")
    for edge in edges.tolist():
        bins = bins + ops.cast(values >= edge, "int32")
    lower = ops.cast(bins, "float32") / num_bins
    within = _index((values - lower) * num_bins * cells_per_bin, cells_per_bin)
    return bins * cells_per_bin + within


def total(values):
    """Sum over the last axis, row by row."""
    return ops.sum(ops.sum(_in_rows(values), axis=-1), axis=-1)


def cumulated(values):
    """Running sum over the last axis, row by row."""
    if values.shape[-1] % ROW != 0 or values.shape[-1] == ROW:
        return ops.cumsum(values, axis=-1)
    rows = ops.cumsum(_in_rows(values), axis=-1)
    ends = rows[..., -1]
    before = cumulated(ends) - ends
    return ops.reshape(rows + before[..., None], values.shape)


def first_above(increasing, bounds):
    """The first cell whose value is above each bound, int32 `(..., bounds)`.

    The last cell where none is.

    Args:
        increasing: `(..., cells)`, not decreasing.
        bounds: `(..., bounds)`.
    """
    rows = _in_rows(increasing)
    bounds = bounds[..., None]
    num_rows, length = rows.shape[-2:]
    row = _count(rows[..., None, :, -1] <= bounds, num_rows - 1)
    of_row = ops.take_along_axis(rows, row[..., None], axis=-2)
    return row * length + _count(of_row <= bounds, length - 1)


def _count(condition, most):
    """How often a condition holds on the last axis, up to `most`."""
    return ops.minimum(ops.sum(ops.cast(condition, "int32"), axis=-1), most)


def _in_rows(values):
    num_cells = values.shape[-1]
    length = ROW if num_cells % ROW == 0 else num_cells
    return ops.reshape(
        values, (*values.shape[:-1], num_cells // length, length)
    )


def _index(position, num_cells):
    # NaN goes into the first cell, whose sums it makes NaN.
    position = ops.where(ops.isnan(position), 0.0, position)
    return ops.cast(ops.clip(position, 0, num_cells - 1), "int32")
