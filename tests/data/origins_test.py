import numpy as np
import pytest
import tensorflow as tf
from sklearn.datasets import load_digits

import caltrain_tf as ct
from caltrain_tf.data.specs import SPECS
from tests.data.conftest import cifar_images


def pixels_of(data, split, batch_size=16):
    """The uint8 images and labels of a split."""
    spec = SPECS[data.name]
    images, labels = [], []
    for batch, ids, weights in data.eval_batches(split, batch_size):
        kept = np.asarray(weights) == 1
        values = (np.asarray(batch)[kept] * spec.std + spec.mean) * 255
        images.append(values.round().astype(np.uint8))
        labels.append(np.asarray(ids)[kept])
    return np.concatenate(images), np.concatenate(labels)


def test_digits_are_those_of_scikit_learn():
    data = ct.data.get("digits")
    parts = [pixels_of(data, split) for split in data.num_examples]
    images = np.concatenate([part[0] for part in parts])
    labels = np.concatenate([part[1] for part in parts])
    pixels, targets = load_digits(return_X_y=True)
    np.testing.assert_array_equal(np.bincount(labels), np.bincount(targets))
    # Bilinear enlargement keeps each image's mean, up to rounding.
    means = images.reshape(1797, -1).mean(axis=1)
    expected = pixels.mean(axis=1) * 255 / 16
    np.testing.assert_allclose(np.sort(means), np.sort(expected), atol=0.5)
    assert (images == images[..., :1]).all()


def test_digits_have_their_classes_in_every_split():
    data = ct.data.get("digits")
    shares = np.bincount(load_digits().target) / 1797
    for split, size in data.num_examples.items():
        counts = np.bincount(pixels_of(data, split)[1], minlength=10)
        assert np.abs(counts - shares * size).max() <= 1


def test_cifar_images_come_out_as_they_went_in(cifar10_dir):
    data = ct.data.get("cifar10", cifar10_dir)
    assert data.num_examples == {"train": 36, "calibration": 4, "test": 10}
    train, labels = pixels_of(data, "train")
    np.testing.assert_array_equal(train, cifar_images("train")[:36])
    np.testing.assert_array_equal(labels, np.arange(36) % 10)
    held, _ = pixels_of(data, "calibration")
    np.testing.assert_array_equal(held, cifar_images("train")[36:])
    test, _ = pixels_of(data, "test")
    np.testing.assert_array_equal(test, cifar_images("test"))


def test_a_slice_of_the_cifar_training_set(cifar10_dir):
    data = ct.data.get("cifar10", cifar10_dir, train_split="train[5:25]")
    assert data.num_examples == {"train": 20, "calibration": 4, "test": 10}
    train, _ = pixels_of(data, "train")
    np.testing.assert_array_equal(train, cifar_images("train")[5:25])
    images, labels = next(iter(data.train_batches(20)))
    assert images.shape == (20, 32, 32, 3)
    assert sorted(labels.numpy()) == sorted(np.arange(5, 25) % 10)


def test_splits_of_a_config_must_not_overlap(cifar10_dir):
    with pytest.raises(ValueError, match="`train` and `calibration` must"):
        ct.data.get("cifar10", cifar10_dir, train_split="train")
    data = ct.data.get(
        "cifar10",
        cifar10_dir,
        train_split="train",
        calibration_split="test[:50%]",
        test_split="test[50%:]",
    )
    assert data.num_examples == {"train": 40, "calibration": 5, "test": 5}


def test_imagenet_is_read_from_jpeg_files(imagenet_dir):
    data = ct.data.get("imagenet", imagenet_dir, image_size=24)
    assert data.image_shape == (24, 24, 3) and data.num_classes == 1000
    assert data.num_examples == {"train": 98, "calibration": 2, "test": 11}
    images, labels = pixels_of(data, "test", 4)
    assert labels.tolist() == list(range(11))
    colors = np.stack([2 * labels, 0 * labels + 100, 0 * labels + 200], axis=1)
    error = images.astype(float) - colors[:, np.newaxis, np.newaxis]
    assert np.abs(error).max() < 6
    _, held = pixels_of(data, "calibration", 4)
    assert held.tolist() == [98, 99]
    seen = np.ravel([ids for _, ids in data.train_batches(14, epoch=2)])
    assert sorted(seen) == list(range(98))
    assert data.train_batches(14).element_spec[0] == tf.TensorSpec(
        (14, 24, 24, 3), tf.float32
    )


def test_interleaved_imagenet(imagenet_dir):
    data = ct.data.get("imagenet", imagenet_dir, image_size=8)
    majority, held_out = data.interleaved(0.5)
    halves = [
        np.ravel([ids for _, ids in part.train_batches(7)])
        for part in (majority, held_out)
    ]
    assert sorted(halves[0]) == list(range(49))
    assert sorted(halves[1]) == list(range(49, 98))


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "imagenet"])
def test_missing_data_say_how_to_get_them(name, tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        ct.data.get(name, tmp_path)
    text = str(error.value)
    stored = SPECS[name].tfds_name
    assert f"tfds build {stored} --data_dir={tmp_path}" in text
    assert "'digits' is embedded" in text and "`data_dir`" in text
    assert not list(tmp_path.iterdir())
