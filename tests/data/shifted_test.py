import numpy as np
import pytest

import caltrain_tf as ct
from tests.data.conftest import (
    cifar_images,
    jpeg_file,
    labels_and_images,
    normalized_cifar,
    store,
)


@pytest.fixture
def data(cifar10_dir):
    return ct.data.get("cifar10", str(cifar10_dir))


def test_generated_sets_are_asked_for(data):
    sets = ct.data.shifted_sets(data, generated=True)
    assert sets.is_generated
    assert "on the fly, seed 0" in sets.source and "texture" in sets.source
    y, x = labels_and_images(sets.batches("contrast", 5, 4))
    assert len(y) == sets.num_examples == 10
    corrupt = ct.data.corruptions.get("contrast", 5)
    expected = corrupt(cifar_images("test"), np.arange(10)).numpy()
    np.testing.assert_allclose(x, normalized_cifar(expected), atol=1e-5)


def test_sets_of_data_without_published_ones_are_generated():
    assert ct.data.shifted_sets(ct.data.get("digits")).is_generated


def test_a_missing_set_is_an_error(data, tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        ct.data.shifted_sets(data, data_dir=str(tmp_path))
    text = str(error.value)
    for part in (
        "'gaussian_noise' of severity 1 of 'cifar10' is missing",
        f"no cifar10_corrupted/gaussian_noise_1 in {tmp_path}",
        "CIFAR-10-C",
        "`corrupted_dir`",
        "`generated=True`",
        "`--generated`",
    ):
        assert part in text
    with pytest.raises(FileNotFoundError, match="<corruption>.npy, or <corr"):
        ct.data.shifted_sets(data, corrupted_dir=tmp_path)
    with pytest.raises(ValueError, match="exclude each other"):
        ct.data.shifted_sets(data, corrupted_dir=tmp_path, generated=True)
    data.name = "cifar100"
    with pytest.raises(
        FileNotFoundError, match="no cifar100_corrupted.*CIFAR-100-C"
    ):
        ct.data.shifted_sets(data, data_dir=str(tmp_path))


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
    sets = ct.data.shifted_sets(data, corrupted_dir=folder, names=["fog"])
    assert not sets.is_generated
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
    sets = ct.data.shifted_sets(data, corrupted_dir=folder, names=["fog"])
    with pytest.raises(FileNotFoundError, match="snow.npy"):
        sets.batches("snow", 1, 4)
    with pytest.raises(FileNotFoundError, match="gaussian_noise.npy"):
        ct.data.shifted_sets(data, corrupted_dir=folder)
    np.save(folder / "snow.npy", images[:-1])
    with pytest.raises(ValueError, match=r"snow.npy .*\(34, 32, 32, 3\)"):
        sets.batches("snow", 1, 4)
    np.save(folder / "labels.npy", labels[:-1])
    with pytest.raises(ValueError, match="size 34"):
        ct.data.shifted_sets(data, corrupted_dir=folder, names=["fog"])


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
    options = {"data_dir": str(tmp_path), "severities": [1]}
    sets = ct.data.shifted_sets(data, names=[corruption], **options)
    assert "cifar10_corrupted" in sets.source and sets.num_examples == 6
    y, x = labels_and_images(sets.batches(corruption, 1, 4))
    np.testing.assert_array_equal(y, range(6))
    np.testing.assert_allclose(x, normalized_cifar(images), atol=1e-5)
    halves = [
        labels_and_images(sets.batches(corruption, 1, 4, shard=(host, 2)))[0]
        for host in (0, 1)
    ]
    assert [half.tolist() for half in halves] == [[0, 1, 2, 3], [4, 5]]
    with pytest.raises(FileNotFoundError, match="'snow' of severity 2"):
        sets.batches("snow", 2, 4)
    with pytest.raises(FileNotFoundError, match="cifar10_corrupted/fog_1"):
        ct.data.shifted_sets(data, names=[corruption, "fog"], **options)


@pytest.fixture
def imagenet(imagenet_dir):
    # Of the 1000 classes, the first five.
    data = ct.data.get("imagenet", imagenet_dir, image_size=24)
    data.num_classes = 5
    return data


def write_imagenet_c(folder, count=7):
    """Images of one colour each: of red, the number of the image."""
    for severity in (1, 2):
        for index in range(count):
            # Not in the order of the classes.
            name = f"n{3 * index % 5:08d}/ILSVRC2012_val_{index:08d}.JPEG"
            path = folder / "fog" / str(severity) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            color = (10 * index + severity, 100, 200)
            path.write_bytes(jpeg_file(224, 224, color))


def test_imagenet_c_is_read_as_it_is_distributed(imagenet, tmp_path):
    write_imagenet_c(tmp_path)
    sets = ct.data.shifted_sets(
        imagenet, corrupted_dir=tmp_path, names=["fog"], severities=[1, 2]
    )
    assert sets.num_examples == 7 and not sets.is_generated
    assert sets.source == f"images of {tmp_path}"
    for hosts in (1, 2, 4):
        parts = [
            labels_and_images(sets.batches("fog", 2, 4, shard=(host, hosts)))
            for host in range(hosts)
        ]
        y = np.concatenate([part[0] for part in parts])
        x = np.concatenate([part[1] for part in parts])
        np.testing.assert_array_equal(y, 3 * np.arange(7) % 5)
        pixels = (x * imagenet.std + imagenet.mean) * 255
        assert x.shape == (7, 24, 24, 3)
        # JPEG moves a colour by up to 2.
        red = 10 * np.arange(7) + 2
        assert np.abs(pixels[..., 0] - red[:, None, None]).max() < 4
    with pytest.raises(FileNotFoundError, match="must hold the images fog/3"):
        sets.batches("fog", 3, 4)
    with pytest.raises(FileNotFoundError, match="must hold the images snow/1"):
        ct.data.shifted_sets(imagenet, corrupted_dir=tmp_path, names=["snow"])
    imagenet.num_classes = 6
    with pytest.raises(ValueError, match="6 folders of classes.*5 in"):
        sets.batches("fog", 2, 4)
