import numpy as np
import pytest
import tensorflow as tf
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
    (histogram.confidence_grid, histogram.confidence_cells),
    (histogram.probability_grid, histogram.probability_cells),
]


@pytest.mark.parametrize(("grid", "cells"), GRIDS)
@pytest.mark.parametrize("num_cells", [16, 512, 16384])
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
        histogram.confidence_cells(np.float32(1) - steps, 16384)
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
    got = histogram.running_sum(ops.convert_to_tensor(values))
    np.testing.assert_array_equal(ops.convert_to_numpy(got), running)
    bounds = np.float32([[0, 1, 2.5, num_cells / 2], [0, 3, 4, 1e6]])
    first = ops.convert_to_numpy(histogram.first_above(got, bounds))
    for column in range(2):
        expected = np.searchsorted(running[column], bounds[column], "right")
        expected = np.minimum(expected, num_cells - 1)
        np.testing.assert_array_equal(first[column], expected)


@pytest.mark.parametrize("term", [1.0, 0.3, 1e-3])
def test_long_sums_keep_their_digits(term):
    @tf.function(jit_compile=True)
    def add_many(state, value):
        for _ in tf.range(10_000):
            state = histogram.add(state, value)
        return state

    start = tf.constant([2.0**24, 0.0])
    high, low = add_many(start, tf.constant([term])).numpy().astype(float)
    expected = 2.0**24 + 10_000 * float(np.float32(term))
    assert high + low == pytest.approx(expected, abs=1e-2)
    # A plain sum would not have moved at all for 1 and less.
    assert float(start[0] + term) == 2.0**24


def test_the_error_of_one_addition_is_exact():
    generator = np.random.default_rng(0)
    a, b = generator.normal(size=(2, 1000)).astype("float32")
    b *= 1e-6
    state = np.concatenate([a, np.zeros_like(a)])
    high, low = np.split(ops.convert_to_numpy(histogram.add(state, b)), 2)
    np.testing.assert_array_equal(
        high.astype(float) + low, a.astype(float) + b.astype(float)
    )


@pytest.mark.parametrize("num_rows", [9, 100])
def test_rows_are_added_to_their_cells(num_rows):
    # Few rows are read and written one by one, many with all cells at once.
    generator = np.random.default_rng(0)
    state = generator.normal(size=(60, 4)).astype("float32")
    state[:, 2:] *= 1e-8
    cells = generator.integers(0, 60, num_rows).astype("int32")
    cells[1] = cells[0]
    values = generator.normal(size=(num_rows, 2)).astype("float32")
    added = ops.convert_to_numpy(
        histogram.add_at(ops.convert_to_tensor(state), cells, values)
    )
    expected = state.astype(float)
    for cell, value in zip(cells, values, strict=True):
        expected[cell, :2] += value
    np.testing.assert_allclose(
        added.astype(float)[:, :2] + added[:, 2:],
        expected[:, :2] + expected[:, 2:],
        # Repeated cells are summed in float32 before they are added.
        atol=2e-6,
    )


def test_nan_has_a_cell():
    nan = np.float32([np.nan])
    assert int(histogram.confidence_cells(nan, 16)[0]) == 0
