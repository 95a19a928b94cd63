"""Sums of a stream, in cells so narrow that bins can be made of them later.

A stream cannot be sorted. It can be counted in cells so narrow that it hardly
matters where in its cell a probability lies. The cells are narrower where most
probabilities are: near 1 for confidences, near 0 and 1 for class probabilities.

A batch touches few cells, and of the state only those are read and written.
Every sum is kept as a pair
of float32: a float32 sum stops growing at 16,777,216, and loses the digits of
its terms long before. (float64 is not an alternative: TPUs and JAX do not have
it by default.) The rounding error of each addition is computed exactly and kept
in the second number of the pair.

Arrays of cells have the cells on the last axis, the state on the first.
"""

import functools
from typing import Any, NamedTuple

import numpy as np
from keras import ops

# Sums over many cells are taken in rows of this length, which is both faster
# and more exact than adding one cell after the other.
ROW = 16
# Below this variance, in widths of their cell, values are taken as ties. Ties
# have up to 1e-7 because of rounding; neighbours in float32 have 1e-5.
TIE_VARIANCE = 1e-6


# Sums in pairs: the last axis of a state holds sums, then rounding errors.


def add(state, values):
    """The state with `values` added to its sums."""
    high, low = ops.split(state, 2, axis=-1)
    sums = high + values
    added = sums - high
    low = low + ((high - (sums - added)) + (values - added))
    # What has accumulated in `low` moves to `high`, so that `low` stays small
    # and loses no digits itself.
    high = sums + low
    return ops.concatenate([high, low - (high - sums)], axis=-1)


def add_at(state, cells, values):
    """The state with rows of `values` added to the sums of their cells.

    Args:
        state: `(cells, 2 * sums)`.
        cells: The cell of each row, int32 `(n,)`, in any order, with repeats.
        values: `(n, sums)`.
    """
    num_cells = state.shape[0]
    of_batch = ops.segment_sum(values, cells, num_segments=num_cells)
    if cells.shape[0] is not None and 4 * cells.shape[0] >= num_cells:
        # Reading and writing many rows one by one takes longer than all cells.
        return add(state, of_batch)
    # All rows of the same cell compute, and write, the same new sums.
    rows = add(
        ops.take(state, cells, axis=0), ops.take(of_batch, cells, axis=0)
    )
    return ops.scatter_update(state, cells[:, None], rows)


def total(state):
    """The sums, with both numbers of each pair added."""
    high, low = ops.split(state, 2, axis=-1)
    return high + low


# Grids of cells.


class Grid(NamedTuple):
    """Centres and widths of the cells, float32 `(cells,)`."""

    centre: np.ndarray
    width: np.ndarray

    @classmethod
    def between(cls, borders):
        """Returns the grid with these borders, one more than cells."""
        centre = ((borders[1:] + borders[:-1]) / 2).astype("float32")
        # Distances are measured in widths, or in the spacing of float32 where
        # cells are narrower than that.
        width = np.maximum(np.diff(borders), np.spacing(centre))
        return cls(centre, width.astype("float32"))


@functools.cache
def confidence_grid(num_cells):
    """A grid that is even in the mean of sqrt(1 - p) and its square root."""
    position = np.linspace(0, 1, num_cells + 1)
    root = (np.sqrt(1 + 8 * (1 - position)) - 1) / 2
    return Grid.between(1 - root**4)


def confidence_cells(values, num_cells):
    """The cell of each confidence in `confidence_grid`."""
    root = ops.sqrt(ops.maximum(1.0 - values, 0.0))
    position = 1.0 - 0.5 * (root + ops.sqrt(root))
    return _index(position * num_cells, num_cells)


@functools.cache
def probability_grid(num_cells):
    """A grid that is even in the fourth root of the smaller of p and 1 - p."""
    position = np.linspace(0, 1, num_cells + 1)
    smaller = (2 * np.minimum(position, 1 - position)) ** 4 / 2
    return Grid.between(np.where(position < 0.5, smaller, 1 - smaller))


def probability_cells(values, num_cells):
    """The cell of each class probability in `probability_grid`."""
    smaller = ops.maximum(ops.minimum(values, 1.0 - values), 0.0)
    position = 0.5 * ops.sqrt(ops.sqrt(2.0 * smaller))
    position = ops.where(values < 0.5, position, 1.0 - position)
    return _index(position * num_cells, num_cells)


@functools.cache
def even_grid(num_cells):
    """A grid that is even in p."""
    return Grid.between(np.linspace(0, 1, num_cells + 1))


def even_cells(values, num_bins, cells_per_bin):
    """The cell of each value; no cell crosses the edge of a bin.

    An edge belongs to the bin above it. A float32 is at least j/num_bins if it
    is at least the smallest float32 that is not below j/num_bins.
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


def _index(position, num_cells):
    # NaN goes into the first cell, whose sums it makes NaN.
    position = ops.where(ops.isnan(position), 0.0, position)
    return ops.cast(ops.clip(position, 0, num_cells - 1), "int32")


# What is summed in a cell.


class Cells(NamedTuple):
    """Sums over the examples of each cell, `(..., cells)`.

    The distance of a probability from the centre of its cell is measured in
    widths of the cell. Distances are small, so that float32 sums of very many
    of them are exact enough.
    """

    mass: Any
    hits: Any
    distance: Any
    squared_distance: Any
    distance_of_hits: Any
    squared_weight: Any

    @classmethod
    def of_state(cls, state_sums, shape=None):
        """Returns the cells of a state's sums, in `shape` if it is given."""
        sums = ops.unstack(state_sums, num=len(cls._fields), axis=-1)
        return cls(*(ops.reshape(part, shape or (-1,)) for part in sums))

    def excess(self, grid):
        """Summed probability minus hits of each cell."""
        # Not confidence minus hits: for a confident network both are close to
        # the mass, and only their small differences from it matter.
        below_one = ops.convert_to_tensor(1.0 - grid.centre)
        width = ops.convert_to_tensor(grid.width)
        misses = self.mass - self.hits
        return misses - self.mass * below_one + self.distance * width


def terms(values, outcome, weight, cells, grid):
    """What examples `(n,)` add to the sums of their cells, `(n, sums)`.

    Args:
        values: Probabilities.
        outcome: 1.0 where the event happened, else 0.0.
        weight: Weights.
        cells: The cell of each probability in `grid`, modulo its length.
        grid: The `Grid`.
    """
    cells = ops.mod(cells, len(grid.centre))
    distance = values - ops.take(grid.centre, cells)
    distance = distance / ops.take(grid.width, cells)
    weighted_distance = weight * distance
    of_example = Cells(
        mass=weight,
        hits=weight * outcome,
        distance=weighted_distance,
        squared_distance=weighted_distance * distance,
        distance_of_hits=weighted_distance * outcome,
        squared_weight=weight * weight,
    )
    return ops.stack(of_example, axis=-1)


# Bins made of cells.


class Bins(NamedTuple):
    """Sums over the examples of each bin, `(..., bins)`.

    `excess` is the summed probability minus the hits.
    """

    mass: Any
    hits: Any
    excess: Any
    squared_weight: Any

    @property
    def accuracy(self):
        """Share of hits; 0 in an empty bin."""
        return ops.divide_no_nan(self.hits, self.mass)

    def error(self, norm, debias=False):
        """sum_b w_b |conf_b - acc_b|^norm, or the largest gap, `(...)`."""
        gap = ops.abs(ops.divide_no_nan(self.excess, self.mass))
        if norm == float("inf"):
            return ops.max(gap, axis=-1)
        powers = gap if norm == 1 else ops.square(gap)
        if debias:
            examples = _effective_number(self.mass, self.squared_weight)
            bias = self.accuracy * (1.0 - self.accuracy)
            # 1.5, because rounding may make 1 a little larger.
            is_known = examples > 1.5
            bias = bias / ops.where(is_known, examples - 1.0, 1.0)
            powers = ops.where(is_known, powers - bias, 0.0)
        mass = ops.sum(self.mass, axis=-1)
        mean = ops.divide_no_nan(ops.sum(self.mass * powers, axis=-1), mass)
        return ops.maximum(mean, 0.0)


def equal_width_bins(cells, grid, num_bins):
    """Bins that consist of the same number of cells each.

    Returns:
        `Bins`, and the cells at which the second and later bins begin.
    """
    cells_per_bin = cells.mass.shape[-1] // num_bins

    def gather(values):
        shape = (*values.shape[:-1], num_bins, cells_per_bin)
        return ops.sum(ops.reshape(values, shape), axis=-1)

    wholes = (cells.mass, cells.hits, cells.excess(grid), cells.squared_weight)
    starts = ops.arange(1, num_bins, dtype="int32") * cells_per_bin
    return Bins(*(gather(values) for values in wholes)), starts


def equal_mass_bins(cells, grid, num_bins):
    """Bins of equal mass, as `calibration_error` defines them.

    A bin begins at some rank, inside of some cell. If the values of that cell
    are ties, all of them belong to the upper bin. If not, those of lower rank
    belong to the lower bin; what they sum to follows from the moments of the
    cell, exactly for two values and as a linear trend for more.

    Returns:
        `Bins`, and the cells `(..., bins - 1)` in which the second and later
        bins begin.
    """
    up_to_here = running_sum(cells.mass)
    mass = up_to_here[..., -1:]
    share = ops.arange(1, num_bins, dtype="float32") / num_bins
    # Ranks are whole numbers if examples are counted, but not with weights.
    is_count = ops.all(cells.mass == ops.floor(cells.mass))
    ranks = ops.minimum(ops.round(mass * share), mass - 1.0)
    ranks = ops.where(is_count, ranks, mass * share)
    position = first_above(up_to_here, ranks)

    def at(values):
        return ops.take_along_axis(values, position, axis=-1)

    excess = cells.excess(grid)
    parts = _lower_part(
        Cells(*(at(values) for values in cells)),
        at(excess),
        at(ops.broadcast_to(grid.width, cells.mass.shape)),
        ranks - (at(up_to_here) - at(cells.mass)),
    )
    bins = []
    wholes = (cells.mass, cells.hits, excess, cells.squared_weight)
    for values, part in zip(wholes, parts, strict=True):
        running = running_sum(values)
        ends = at(running) - at(values) + part
        ends = ops.concatenate([ends, running[..., -1:]], axis=-1)
        starts = ops.concatenate(
            [ops.zeros_like(ends[..., :1]), ends[..., :-1]], axis=-1
        )
        bins.append(ends - starts)
    return Bins(*bins), position


def _lower_part(cell, excess, width, mass):
    """Sums over the first examples of a cell, up to a total of `mass`.

    Standardized ranks z of n examples have sum 0 and sum of squares n, and the
    first k of them sum to -k (n - k) / sqrt((n^2 - 1) / 3). A value with mean m
    and covariance v with z is taken to be m + v z, so that its first k sum to
    k m - v k (n - k) / sqrt(...).
    """
    n = _effective_number(cell.mass, cell.squared_weight)
    mean = ops.divide_no_nan(cell.distance, cell.mass)
    variance = ops.divide_no_nan(cell.squared_distance, cell.mass)
    variance = variance - ops.square(mean)
    is_divided = (variance > TIE_VARIANCE) & (n > 1.5)
    deviation = ops.sqrt(ops.where(is_divided, variance, 1.0))
    share = ops.where(is_divided, ops.divide_no_nan(mass, cell.mass), 0.0)
    k = share * n
    safe_n = ops.maximum(n, 2.0)
    lever = k * (n - k) / ops.sqrt((ops.square(safe_n) - 1.0) / 3.0)
    lever = lever * ops.divide_no_nan(cell.mass, n)

    hit_rate = ops.divide_no_nan(cell.hits, cell.mass)
    covariance = ops.divide_no_nan(cell.distance_of_hits, cell.mass)
    trend_of_hits = (covariance - mean * hit_rate) / deviation
    trend_of_excess = deviation * width - trend_of_hits
    return (
        share * cell.mass,
        share * cell.hits - trend_of_hits * lever,
        share * excess - trend_of_excess * lever,
        share * cell.squared_weight,
    )


def label_error(cells, grid, starts, accuracy, norm):
    """Mean of |conf_i - acc_b(i)|^norm, or the largest difference.

    All examples of a cell are taken to have the mean confidence of the cell.

    Args:
        cells: `Cells`, `(cells,)` each.
        grid: Their `Grid`.
        starts: The cells at which the second and later bins begin.
        accuracy: Accuracy of each bin.
        norm: 1, 2 or inf.
    """
    index = ops.arange(cells.mass.shape[-1], dtype="int32")
    bins = ops.sum(ops.cast(index[:, None] >= starts, "int32"), axis=-1)
    distance = ops.divide_no_nan(cells.distance, cells.mass)
    mean = ops.convert_to_tensor(grid.centre)
    mean = mean + distance * ops.convert_to_tensor(grid.width)
    gap = ops.abs(ops.take(accuracy, bins) - mean)
    if norm == float("inf"):
        return ops.max(ops.where(cells.mass > 0, gap, 0.0))
    powers = gap if norm == 1 else ops.square(gap)
    return ops.divide_no_nan(
        running_sum(cells.mass * powers)[-1], running_sum(cells.mass)[-1]
    )


def _effective_number(mass, squared_weight):
    """(sum w)^2 / sum w^2: the number of examples, if all weigh the same."""
    return mass * ops.divide_no_nan(mass, squared_weight)


# Running sums.


def running_sum(values):
    """Running sum over the last axis, row by row."""
    if values.shape[-1] % ROW != 0 or values.shape[-1] == ROW:
        return ops.cumsum(values, axis=-1)
    rows = ops.cumsum(_in_rows(values), axis=-1)
    ends = rows[..., -1]
    before = running_sum(ends) - ends
    return ops.reshape(rows + before[..., None], values.shape)


def first_above(increasing, bounds):
    """The first cell whose value is above each bound, int32 `(..., bounds)`.

    It is the last cell where none is above the bound.

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
