import importlib

import numpy as np
import pytest

import caltrain_tf as ct
from tests.data.conftest import cifar_images
from tests.data.conftest import labels_and_images
from tests.data.conftest import normalized_cifar


@pytest.fixture
def data(cifar10_dir):
    return ct.data.get("cifar10", str(cifar10_dir))


def test_others_are_made_on_the_fly(data):
    sets = ct.data.shifted_sets(data, data_dir="nowhere", seed=3)
    assert "on the fly, seed 3" in sets.source and "texture" in sets.source
    y, x = labels_and_images(sets.batches("contrast", 5, 4))
    assert len(y) == sets.num_examples == 10
    corrupt = ct.data.corruptions.get("contrast", 5)
    expected = corrupt(cifar_images("test"), np.arange(10)).numpy()
    np.testing.assert_allclose(x, normalized_cifar(expected), atol=1e-5)


def test_a_walk_is_one_set_after_the_other(data):
    sets = ct.data.GeneratedSets(data)
    shifts = [("contrast", 5), ("jpeg_compression", 1), ("snow", 2)]
    # The last batch is filled up.
    walk = list(sets.walk(shifts, batch_size=4, num_batches=3))
    alone = [batch for shift in shifts for batch in sets.batches(*shift, 4)]
    assert len(walk) == len(alone) == 9
    for batch, expected in zip(walk, alone, strict=True):
        for values, others in zip(batch, expected, strict=True):
            np.testing.assert_array_equal(values, others)
    first = list(sets.walk(shifts, batch_size=4, num_batches=1))
    assert len(first) == 3
    for batch, expected in zip(first, walk[::3], strict=True):
        np.testing.assert_array_equal(batch[0], expected[0])


def test_a_walk_with_bad_photographs_is_an_error_at_once(data, tmp_path):
    sets = ct.data.GeneratedSets(data, frost_dir=str(tmp_path))
    with pytest.raises(ValueError, match="`frost_dir` must hold images"):
        sets.walk([("contrast", 1), ("frost", 1)], 4, 3)


def test_a_complete_store_is_taken(data, monkeypatch):
    # The function of the same name hides the module.
    module = importlib.import_module("caltrain_tf.data.shifted_sets")
    asked = []

    def find(name, corruption, severity, data_dir):
        asked.append((corruption, severity))
        return "builder"

    monkeypatch.setattr(module, "find_corrupted", find)
    monkeypatch.setattr(module, "StoredSets", lambda *args: args)
    assert ct.data.shifted_sets(data, data_dir="there") == (data, "there")
    assert len(set(asked)) == 75
