import numpy as np
import pytest

from caltrain_tf.metrics import binning
from tests.metrics import naive


@pytest.mark.parametrize("num_examples", [1, 2, 7, 10, 100])
@pytest.mark.parametrize("num_bins", [1, 2, 3, 15, 200])
def test_equal_mass_edges(num_examples, num_bins):
    values = np.random.default_rng(0).random(num_examples)
    edges = binning.inner_edges(values, num_bins, "equal_mass")
    assert edges.tolist() == naive.equal_mass_edges(values, num_bins)


def test_bins_of_distinct_values_differ_by_at_most_one():
    values = np.random.default_rng(0).random(1000)
    edges = binning.inner_edges(values, 15, "equal_mass")
    counts = np.bincount(binning.bin_indices(values, edges))
    assert set(counts) <= {66, 67}


def test_six_tenths_belongs_to_the_bin_above():
    edges = binning.inner_edges(np.array([0.5]), 5, "equal_width")
    assert binning.bin_indices(np.array([0.6]), edges).tolist() == [3]


@pytest.mark.parametrize("num_bins", [15, 100])
def test_an_edge_belongs_to_the_bin_above(num_bins):
    edges = np.arange(1, num_bins) / num_bins
    indices = binning.bin_indices(edges, edges)
    assert indices.tolist() == list(range(1, num_bins))
    assert binning.bin_indices(np.array([0.0, 1.0]), edges).tolist() == [
        0,
        num_bins - 1,
    ]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sort_together(dtype):
    generator = np.random.default_rng(0)
    confidence = generator.random(1000).astype(dtype)
    confidence[:5] = [0, 1, 1, 1e-40, np.finfo(dtype).tiny]
    correct = generator.random(1000) < 0.5
    got_confidence, got_correct = binning.sort_together(confidence, correct)
    order = np.lexsort((correct, confidence))
    np.testing.assert_array_equal(got_confidence, confidence[order])
    np.testing.assert_array_equal(got_correct, correct[order])
    assert got_confidence.dtype == dtype
