import numpy as np
import pytest

import caltrain_tf as ct
from caltrain_tf.data import shifted
from tests.data.conftest import (
    cifar_images,
    labels_and_images,
    normalized_cifar,
    store,
)


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


def test_bad_photographs_are_an_error_at_once(data, tmp_path):
    sets = ct.data.GeneratedSets(data, frost_dir=str(tmp_path))
    with pytest.raises(ValueError, match="`frost_dir` must hold images"):
        sets.batches("frost", 1, 4)


def test_a_complete_store_is_taken(data, monkeypatch):
    asked = []

    def find(name, corruption, severity, data_dir):
        asked.append((corruption, severity))
        return "builder"

    monkeypatch.setattr(shifted, "find_corrupted", find)
    monkeypatch.setattr(shifted, "StoredSets", lambda *args: args)
    assert ct.data.shifted_sets(data, data_dir="there") == (data, "there")
    assert len(set(asked)) == 75


@pytest.fixture
def published(tmp_path):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (5 * 7, 32, 32, 3), dtype=np.uint8)
    labels = np.tile(np.arange(7), 5).astype(np.uint8)
    np.save(tmp_path / "fog.npy", images)
    np.save(tmp_path / "labels.npy", labels)
    return tmp_path, images, labels


def test_published_arrays_are_read_a_severity_at_a_time(data, published):
    folder, images, labels = published
    sets = ct.data.shifted_sets(data, corrupted_dir=folder)
    assert sets.num_examples == 7 and str(folder) in sets.source
    for severity in (1, 4):
        chosen = slice(7 * (severity - 1), 7 * severity)
        y, x = labels_and_images(sets.batches("fog", severity, 4))
        np.testing.assert_array_equal(y, labels[chosen])
        np.testing.assert_allclose(
            x, normalized_cifar(images[chosen]), atol=1e-5
        )
    halves = [sets.batches("fog", 4, 4, shard=(i, 2)) for i in (0, 1)]
    y = np.concatenate([labels_and_images(half)[0] for half in halves])
    assert y.tolist() == [0, 1, 4, 5, 2, 3, 6]


def test_incomplete_folders_are_errors(data, published):
    folder, images, labels = published
    sets = ct.data.PublishedArrays(data, folder)
    with pytest.raises(FileNotFoundError, match="snow.npy"):
        sets.batches("snow", 1, 4)
    np.save(folder / "snow.npy", images[:-1])
    with pytest.raises(ValueError, match=r"`snow.npy` .*\(34, 32, 32, 3\)"):
        sets.batches("snow", 1, 4)
    np.save(folder / "labels.npy", np.arange(35))
    with pytest.raises(ValueError, match="same labels for each severity"):
        ct.data.PublishedArrays(data, folder)
    np.save(folder / "labels.npy", labels[:-1])
    with pytest.raises(ValueError, match=r"shape=\(34,\)"):
        ct.data.PublishedArrays(data, folder)


@pytest.mark.parametrize(
    "corruption, spelled",
    [("brightness", "brightness"), ("glass_blur", "frosted_glass_blur")],
)
def test_stored_sets_are_those_of_tfds(data, tmp_path, corruption, spelled):
    import tensorflow_datasets as tfds

    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (6, 32, 32, 3), dtype=np.uint8)
    examples = [
        {"image": image, "label": index} for index, image in enumerate(images)
    ]
    features = {
        "image": tfds.features.Image(shape=(32, 32, 3)),
        "label": tfds.features.ClassLabel(num_classes=10),
    }
    for name in {"brightness", spelled}:
        store(
            tmp_path,
            "cifar10_corrupted",
            "1.0.0",
            {"test": examples},
            features,
            config=f"{name}_1",
        )
    sets = ct.data.StoredSets(data, str(tmp_path))
    assert "cifar10_corrupted" in sets.source and sets.num_examples == 6
    y, x = labels_and_images(sets.batches(corruption, 1, 4))
    np.testing.assert_array_equal(y, range(6))
    np.testing.assert_allclose(x, normalized_cifar(images), atol=1e-5)
    half, _ = labels_and_images(sets.batches(corruption, 1, 4, shard=(1, 2)))
    assert half.tolist() == [2, 3]
    with pytest.raises(FileNotFoundError, match="'snow' of severity 2"):
        sets.batches("snow", 2, 4)
    # Some of them are no reason to leave the others out.
    sets = ct.data.shifted_sets(data, data_dir=str(tmp_path))
    assert isinstance(sets, ct.data.GeneratedSets)
