import numpy as np
import pytest
from keras import ops

from caltrain_tf.metrics.streaming import histogram

VALUES = np.concatenate(
    [
        np.linspace(0, 1, 1001),
        1 - np.geomspace(1e-7, 1, 500),
        np.geomspace(1e-12, 1, 500),
    ]
).astype("float32")
GRIDS = [
    (histogram.grid_towards_one, histogram.cells_towards_one),
    (histogram.grid_towards_both_ends, histogram.cells_towards_both_ends),
]


@pytest.mark.parametrize(("grid", "cells"), GRIDS)
@pytest.mark.parametrize("num_cells", [16, 512, 65536])
def test_values_lie_in_their_cells(grid, cells, num_cells):
    index = ops.convert_to_numpy(cells(VALUES, num_cells))
    centre, width = grid(num_cells)
    assert index.min() >= 0 and index.max() == num_cells - 1
    distance = (VALUES - centre[index]) / width[index]
    # Half a width, and what float32 rounds near a border.
    assert np.abs(distance).max() < 1.1
    order = np.argsort(VALUES)
    assert (np.diff(index[order]) >= 0).all()


def test_neighbours_near_one_are_kept_apart():
    steps = np.arange(20, dtype="float32") * np.float32(2**-24)
    index = ops.convert_to_numpy(
        histogram.cells_towards_one(np.float32(1) - steps, 65536)
    )
    assert len(set(index)) == 20


@pytest.mark.parametrize("num_bins", [1, 2, 5, 10, 15, 30])
def test_no_even_cell_reaches_over_an_edge(num_bins):
    edges = (np.arange(1, num_bins) / num_bins).astype("float32")
    values = np.concatenate([VALUES, edges, np.nextafter(edges, np.float32(0))])
    cells = ops.convert_to_numpy(histogram.even_cells(values, num_bins, 8))
    exact = np.arange(1, num_bins) / num_bins
    bins = np.searchsorted(exact, values.astype(float), side="right")
    np.testing.assert_array_equal(cells // 8, bins)


@pytest.mark.parametrize("num_cells", [7, 16, 64, 4096])
def test_running_sums_and_where_they_pass_a_bound(num_cells):
    values = np.random.default_rng(0).integers(0, 3, (2, num_cells))
    values = values.astype("float32")
    running = np.cumsum(values, axis=-1)
    got = histogram.cumulated(ops.convert_to_tensor(values))
    np.testing.assert_array_equal(ops.convert_to_numpy(got), running)
    np.testing.assert_array_equal(
        ops.convert_to_numpy(histogram.total(ops.convert_to_tensor(values))),
        values.sum(axis=-1),
    )
    bounds = np.float32([[0, 1, 2.5, num_cells / 2], [0, 3, 4, 1e6]])
    first = ops.convert_to_numpy(histogram.first_above(got, bounds))
    for column in range(2):
        expected = np.searchsorted(running[column], bounds[column], "right")
        expected = np.minimum(expected, num_cells - 1)
        np.testing.assert_array_equal(first[column], expected)


def test_nan_has_a_cell():
    nan = np.float32([np.nan])
    assert int(histogram.cells_towards_one(nan, 16)[0]) == 0
