"""Bins made of the cells of a histogram, and the errors of such bins."""

from typing import Any
from typing import NamedTuple

from keras import ops

from caltrain_tf.metrics.streaming import histogram

# Below this variance, in widths of their cell, values are taken as ties.
# Rounding makes 1e-7 of none; neighbours in float32 make 1e-5.
TIE_VARIANCE = 1e-6


class BinSums(NamedTuple):
    """Sums over the examples of each bin, `(..., bins)`.

    `excess` is the summed probability minus the hits.
    """

    count: Any
    hits: Any
    excess: Any

    @property
    def accuracy(self):
        """Share of hits; 0 in an empty bin."""
        return ops.divide_no_nan(self.hits, self.count)


def equal_width_bins(cells, excess, num_bins):
    """Sums over bins that consist of the same number of cells each.

    Returns:
        `BinSums`, and the cells at which the second and later bins begin.
    """
    cells_per_bin = cells.count.shape[-1] // num_bins

    def gather(values):
        shape = (*values.shape[:-1], num_bins, cells_per_bin)
        return ops.sum(ops.reshape(values, shape), axis=-1)

    sums = BinSums(gather(cells.count), gather(cells.hits), gather(excess))
    return sums, ops.arange(1, num_bins, dtype="int32") * cells_per_bin


def equal_mass_bins(cells, excess, width, num_bins):
    """Sums over bins of equal mass, as `calibration_error` defines them.

    A bin begins at some rank, inside of some cell. If the values of that cell
    are ties, all of them belong to the upper bin. If not, those of lower rank
    belong to the lower bin; what they sum to follows from the moments of the
    cell, exactly for two values and as a linear trend for more.

    Args:
        cells: `Cells`.
        excess: Of each cell.
        width: Of each cell.
        num_bins: Number of bins.

    Returns:
        `BinSums`, and the cells `(..., bins - 1)` in which the second and later
        bins begin.
    """
    up_to_here = histogram.cumulated(cells.count)
    total = up_to_here[..., -1:]
    share = ops.arange(1, num_bins, dtype="float32") / num_bins
    # Ranks are whole numbers if examples are counted. Weights have no ranks.
    is_count = ops.all(cells.count == ops.floor(cells.count))
    ranks = ops.minimum(ops.round(total * share), total - 1.0)
    ranks = ops.where(is_count, ranks, total * share)
    position = histogram.first_above(up_to_here, ranks)

    def at(values):
        return ops.take_along_axis(values, position, axis=-1)

    rank_in_cell = ranks - (at(up_to_here) - at(cells.count))
    parts = _lower_part(
        type(cells)(*(at(values) for values in cells)),
        at(excess),
        at(ops.broadcast_to(width, cells.count.shape)),
        ops.where(is_count, rank_in_cell, 0.0),
    )
    sums = []
    wholes = (cells.count, cells.hits, excess)
    for values, part in zip(wholes, parts, strict=True):
        running = histogram.cumulated(values)
        ends = at(running) - at(values) + part
        ends = ops.concatenate([ends, running[..., -1:]], axis=-1)
        starts = ops.concatenate(
            [ops.zeros_like(ends[..., :1]), ends[..., :-1]], axis=-1
        )
        sums.append(ends - starts)
    return BinSums(*sums), position


def _lower_part(cell, excess, width, rank):
    """What the first `rank` examples of a cell sum to.

    Standardized ranks z of n examples have sum 0 and sum of squares n, and the
    first k of them sum to -k (n - k) / sqrt((n^2 - 1) / 3). A value with mean m
    and covariance v with z is taken to be m + v z, so that its first k sum to
    k m - v k (n - k) / sqrt(...).
    """
    n = ops.maximum(cell.count, 1.0)
    mean = cell.distance / n
    variance = cell.squared_distance / n - ops.square(mean)
    is_divided = (variance > TIE_VARIANCE) & (n > 1.0)
    deviation = ops.sqrt(ops.where(is_divided, variance, 1.0))
    k = ops.where(is_divided, rank, 0.0)
    safe_n = ops.maximum(n, 2.0)
    lever = k * (n - k) / ops.sqrt((ops.square(safe_n) - 1.0) / 3.0)

    covariance = cell.distance_of_hits / n - mean * cell.hits / n
    trend_of_hits = covariance / deviation
    hits = k * cell.hits / n - trend_of_hits * lever
    trend_of_excess = deviation * width - trend_of_hits
    return k, hits, k * excess / n - trend_of_excess * lever


def bin_error(sums, norm, debias=False):
    """sum_b w_b |conf_b - acc_b|^norm, or the largest difference, `(...)`."""
    gap = ops.abs(ops.divide_no_nan(sums.excess, sums.count))
    if norm == float("inf"):
        return ops.max(gap, axis=-1)
    powers = gap if norm == 1 else ops.square(gap)
    if debias:
        accuracy = sums.accuracy
        bias = accuracy * (1.0 - accuracy)
        bias = bias / ops.maximum(sums.count - 1.0, 1.0)
        powers = ops.where(sums.count > 1.0, powers - bias, 0.0)
    total = ops.sum(sums.count, axis=-1)
    mean = ops.divide_no_nan(ops.sum(sums.count * powers, axis=-1), total)
    return ops.maximum(mean, 0.0)


def label_error(cells, grid, starts, accuracy, norm):
    """Mean of |conf_i - acc_b(i)|^norm, or the largest of them.

    The examples of a cell are taken to have its mean.

    Args:
        cells: `Cells`, `(cells,)` each.
        grid: Their `histogram.Grid`.
        starts: The cells at which the second and later bins begin.
        accuracy: Of each bin.
        norm: 1, 2 or inf.
    """
    index = ops.arange(cells.count.shape[-1], dtype="int32")
    bins = ops.sum(ops.cast(index[:, None] >= starts, "int32"), axis=-1)
    distance = ops.divide_no_nan(cells.distance, cells.count)
    mean = grid.centre + distance * grid.width
    gap = ops.abs(ops.take(accuracy, bins) - mean)
    if norm == float("inf"):
        return ops.max(ops.where(cells.count > 0, gap, 0.0))
    powers = gap if norm == 1 else ops.square(gap)
    return ops.divide_no_nan(
        histogram.total(cells.count * powers), histogram.total(cells.count)
    )
