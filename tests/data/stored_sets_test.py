import numpy as np
import pytest

import caltrain_tf as ct
from tests.data.conftest import labels_and_images
from tests.data.conftest import normalized_cifar
from tests.data.conftest import store


@pytest.fixture
def data(cifar10_dir):
    return ct.data.get("cifar10", str(cifar10_dir))


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


def test_published_arrays_are_walked_one_after_the_other(data, published):
    folder, images, labels = published
    np.save(folder / "snow.npy", 255 - images)
    sets = ct.data.PublishedArrays(data, folder)
    walk = sets.walk([("fog", 3), ("snow", 1)], batch_size=4, num_batches=2)
    y, x = labels_and_images(walk)
    np.testing.assert_array_equal(y, np.tile(labels[:7], 2))
    expected = np.concatenate([images[14:21], 255 - images[:7]])
    np.testing.assert_allclose(x, normalized_cifar(expected), atol=1e-5)


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
    with pytest.raises(FileNotFoundError, match="'snow' of severity 2"):
        sets.batches("snow", 2, 4)
    # Some of them are no reason to leave the others out.
    sets = ct.data.shifted_sets(data, data_dir=str(tmp_path))
    assert isinstance(sets, ct.data.GeneratedSets)
