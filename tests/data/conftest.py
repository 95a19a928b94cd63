"""Small folders in the layout of TensorFlow Datasets."""

import io

import numpy as np
import pytest
from PIL import Image

import caltrain_tf as ct

NUM_TRAIN, NUM_TEST = 40, 10


def store(folder, name, version, splits, features, config=None):
    import tensorflow_datasets as tfds

    tfds.dataset_builders.store_as_tfds_dataset(
        name=name,
        config=config,
        version=version,
        data_dir=folder,
        split_datasets={
            split: list(enumerate(examples))
            for split, examples in splits.items()
        },
        features=tfds.features.FeaturesDict(features),
        disable_shuffling=True,
    )


def cifar_images(split):
    """The images of a split: the first pixel tells which one it is."""
    size = NUM_TRAIN if split == "train" else NUM_TEST
    rng = np.random.default_rng(size)
    images = rng.integers(0, 256, (size, 32, 32, 3), dtype=np.uint8)
    images[:, 0, 0, 0] = np.arange(size)
    return images


@pytest.fixture(scope="session")
def cifar10_dir(tmp_path_factory):
    import tensorflow_datasets as tfds

    folder = tmp_path_factory.mktemp("tfds_cifar10")
    splits = {
        split: [
            {"id": f"{split}_{index}", "image": image, "label": index % 10}
            for index, image in enumerate(cifar_images(split))
        ]
        for split in ("train", "test")
    }
    features = {
        "id": tfds.features.Text(),
        "image": tfds.features.Image(shape=(32, 32, 3)),
        "label": tfds.features.ClassLabel(num_classes=10),
    }
    store(folder, "cifar10", "3.0.2", splits, features)
    return folder


def jpeg_file(height, width, color):
    """A JPEG image of one colour, encoded."""
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), color).save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


@pytest.fixture(scope="session")
def imagenet_dir(tmp_path_factory):
    import tensorflow_datasets as tfds

    folder = tmp_path_factory.mktemp("tfds_imagenet")
    sizes = {"train": 100, "validation": 11}
    splits = {
        split: [
            {
                "image": io.BytesIO(
                    jpeg_file(40 + index % 7, 50, (2 * index, 100, 200))
                ),
                "label": index,
                "file_name": f"n{index:08d}_{split}.JPEG",
            }
            for index in range(size)
        ]
        for split, size in sizes.items()
    }
    features = {
        "image": tfds.features.Image(encoding_format="jpeg"),
        "label": tfds.features.ClassLabel(num_classes=1000),
        "file_name": tfds.features.Text(),
    }
    store(folder, "imagenet2012", "5.1.0", splits, features)
    return folder


def labels_and_images(dataset):
    parts = [
        (images.numpy()[kept], labels.numpy()[kept])
        for images, labels, weights in dataset
        for kept in [weights.numpy() > 0]
    ]
    images, labels = zip(*parts, strict=True)
    return np.concatenate(labels), np.concatenate(images)


def normalized_cifar(images):
    spec = ct.data.SPECS["cifar10"]
    return (images / 255 - spec.mean) / spec.std
