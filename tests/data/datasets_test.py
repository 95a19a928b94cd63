import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from sklearn.datasets import load_digits

import caltrain_tf as ct
from caltrain_tf import files
from caltrain_tf.data.datasets import SPECS, Part, parse_split
from tests.data.conftest import cifar_images, store

# Stored and used examples, of the data sets as they are published.
PUBLISHED = {
    "cifar10": {"train": 50_000, "test": 10_000},
    "cifar100": {"train": 50_000, "test": 10_000},
    "imagenet": {"train": 1_281_167, "validation": 50_000, "test": 100_000},
    "digits": {"train": 1197, "test": 600},
}
USED = {
    "cifar10": (45_000, 5_000, 10_000),
    "cifar100": (45_000, 5_000, 10_000),
    "imagenet": (1_255_544, 25_623, 50_000),
    "digits": (800, 397, 600),
}


@pytest.mark.parametrize("name", sorted(SPECS))
def test_splits_are_disjoint_and_as_documented(name):
    splits = SPECS[name].splits
    assert list(splits) == ["train", "calibration", "test"]
    used = {
        split: parse_split(text, PUBLISHED[name])
        for split, text in splits.items()
    }
    assert tuple(part.size for part in used.values()) == USED[name]
    # Nothing of the training set is lost between two of its parts.
    assert used["calibration"].start == used["train"].stop
    assert used["calibration"].stop == PUBLISHED[name]["train"]


SIZES = {"train": 1797, "test": 10}


def read_by_tfds(split):
    """The same by the library whose syntax it is."""
    import tensorflow_datasets as tfds

    instruction = tfds.core.ReadInstruction.from_spec(split)
    infos = {
        name: tfds.core.SplitInfo(
            name=name,
            shard_lengths=[size],
            num_bytes=0,
            filename_template=None,
        )
        for name, size in SIZES.items()
    }
    (absolute,) = instruction.to_absolute(infos)
    start = 0 if absolute.from_ is None else absolute.from_
    stop = SIZES[absolute.splitname] if absolute.to is None else absolute.to
    return Part(absolute.splitname, start, stop)


def test_it_reads_what_tensorflow_datasets_reads():
    rng = np.random.default_rng(0)
    splits = ["train", "test", "train[1_000:]", "train[-3:]"]
    for percent in rng.integers(1, 100, 60):
        splits += [f"train[:{percent}%]", f"train[-{percent}%:]"]
    for start, stop in np.sort(rng.integers(0, 1797, (20, 2)), axis=1):
        splits += [f"train[{start}:{stop + 1}]"]
    for split in splits:
        assert parse_split(split, SIZES) == read_by_tfds(split), split


def test_a_part_is_written_in_the_same_syntax():
    part = parse_split("train[10%:-5]", SIZES)
    assert parse_split(str(part), SIZES) == part
    assert part.size == 1797 - 180 - 5


def test_what_is_no_split_is_an_error():
    for split in (
        *("", "train[", "train[1:2:3]", "train[a:]", "train+test", "valid"),
        *("train[5:5]", "train[9:3]", "train[:1798]", "train[-1798:]"),
        "train[:101%]",
    ):
        with pytest.raises(ValueError, match="Received: "):
            parse_split(split, SIZES)


def test_a_mistyped_name_gets_the_nearest():
    with pytest.raises(ValueError, match="mean 'cifar10'.*name='cifar-10'"):
        ct.data.get("cifar-10")
    with pytest.raises(ValueError, match="`name` must be one of"):
        ct.data.get(None)


def test_image_size_is_for_imagenet_only():
    with pytest.raises(ValueError, match="`image_size` .*Received"):
        ct.data.get("digits", image_size=64)


def test_training_images_are_left_alone_without_augmentation():
    data = ct.data.get("digits", augment=False)
    images, labels = next(iter(data.train_batches(800)))
    plain, ids, _ = next(iter(data.eval_batches("train", 800)))

    def order(images, labels):
        rows = np.c_[labels, np.reshape(images, (800, -1))]
        return rows[np.lexsort(rows.T)]

    np.testing.assert_array_equal(order(images, labels), order(plain, ids))


def test_imagenet_is_always_augmented(imagenet_dir):
    with pytest.raises(ValueError, match="`augment` .*Received: augment=False"):
        ct.data.get("imagenet", imagenet_dir, augment=False)


def pixels_of(data, split, batch_size=16):
    """The uint8 images and labels of a split."""
    images, labels = [], []
    for batch, ids, weights in data.eval_batches(split, batch_size):
        kept = np.asarray(weights) == 1
        values = (np.asarray(batch)[kept] * data.std + data.mean) * 255
        images.append(values.round().astype(np.uint8))
        labels.append(np.asarray(ids)[kept])
    return np.concatenate(images), np.concatenate(labels)


def test_digits_are_those_of_scikit_learn():
    data = ct.data.get("digits")
    parts = {split: pixels_of(data, split) for split in data.num_examples}
    images, labels = map(np.concatenate, zip(*parts.values(), strict=True))
    pixels, targets = load_digits(return_X_y=True)
    # Bilinear enlargement keeps each image's mean, up to rounding.
    means = images.reshape(1797, -1).mean(axis=1)
    expected = pixels.mean(axis=1) * 255 / 16
    np.testing.assert_allclose(np.sort(means), np.sort(expected), atol=0.5)
    assert (images == images[..., :1]).all()
    # Every split has its share of each class.
    for _, ids in [*parts.values(), (None, labels)]:
        counts = np.bincount(ids, minlength=10)
        shares = np.bincount(targets) / 1797 * len(ids)
        assert np.abs(counts - shares).max() <= 1


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


def test_splits_must_not_overlap(cifar10_dir):
    with pytest.raises(ValueError, match=r"`train_split` .*train\[36:40\]"):
        ct.data.get("cifar10", cifar10_dir, train_split="train")


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


def test_missing_data_say_how_to_get_them(tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        ct.data.get("imagenet", tmp_path)
    text = str(error.value)
    assert f"tfds build imagenet2012 --data_dir={tmp_path}" in text
    assert "'digits' is embedded" in text and "`data_dir`" in text
    assert not list(tmp_path.iterdir())


def write_folder(folder, images, labels):
    for index, (image, label) in enumerate(zip(images, labels, strict=True)):
        path = folder / "abc"[label] / f"{index:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)


@pytest.fixture
def own():
    """30 small images of 3 classes, sorted by class; the labels."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (30, 16, 16, 3), dtype=np.uint8)
    return images, np.repeat([0, 1, 2], 10)


def assert_holds(data, own):
    """Every image once, with its label, and the classes spread evenly."""
    known = {image.tobytes(): label for image, label in zip(*own, strict=True)}
    seen = []
    for split, size in data.num_examples.items():
        pixels, ids = pixels_of(data, split, 4)
        assert len(set(ids)) == min(size, 3)
        for image, label in zip(pixels, ids, strict=True):
            assert known[image.tobytes()] == label
            seen.append(image.tobytes())
    assert sorted(seen) == sorted(known)
    batch, _ = next(iter(data.train_batches(6, epoch=1)))
    assert batch.shape == (6, 16, 16, 3)


@pytest.mark.parametrize("kind", ["folder", "npz"])
@pytest.mark.parametrize("has_test", [True, False])
def test_your_own_images(tmp_path, own, kind, has_test):
    splits = {"": own}
    if has_test:
        splits = {
            "train": [x[::2] for x in own],
            "test": [x[1::2] for x in own],
        }
    name = f"{kind}:{tmp_path}"
    if kind == "folder":
        for split, arrays in splits.items():
            write_folder(tmp_path / split, *arrays)
    else:
        name += "/mine.npz"
        arrays = dict(zip(("images", "labels"), own, strict=True))
        if has_test:
            arrays = {
                f"{letter}_{split}": part
                for split, pair in splits.items()
                for letter, part in zip("xy", pair, strict=True)
            }
        np.savez(tmp_path / "mine.npz", **arrays)
    data = ct.data.get(name, image_size=16)
    assert data.num_classes == 3 and data.image_shape == (16, 16, 3)
    # 90% and 10% of 15, or 80%, 10% and 10% of 30.
    sizes = (14, 1, 15) if has_test else (24, 3, 3)
    assert tuple(data.num_examples.values()) == sizes
    assert_holds(data, own)
    # The corruptions are for any square images.
    sets = ct.data.shifted_sets(data)
    assert len(list(sets.batches("contrast", 1, 5))) == -(-sizes[2] // 5)


def test_grey_arrays_and_the_labels_of_keras_files(tmp_path, own):
    images, labels = own
    np.savez(
        tmp_path / "grey.npz", images=images[..., 0], labels=labels[:, None]
    )
    data = ct.data.get(str(tmp_path / "grey.npz"))
    assert data.image_shape == (16, 16, 3)
    pixels, _ = pixels_of(data, "test")
    assert (pixels == pixels[..., :1]).all()


def test_other_arrays_are_errors(tmp_path):
    path = tmp_path / "bad.npz"
    pixels = np.zeros((2, 4, 4, 3), "u1")
    for arrays, message in (
        ({"pixels": pixels}, "'images' and 'labels'.*pixels"),
        ({"images": pixels.astype(float), "labels": [0, 1]}, "uint8"),
        ({"images": pixels, "labels": [0]}, "class ids"),
        ({"images": pixels, "labels": [0.5, 1]}, "float64"),
        ({"images": np.array([{}]), "labels": [0]}, "allow_pickle"),
    ):
        np.savez(path, **arrays)
        with pytest.raises(ValueError, match=message):
            ct.data.get(str(path))


def test_damaged_files_are_named(tmp_path):
    path = tmp_path / "damaged.npz"
    np.savez_compressed(path, images=np.arange(999), labels=[0])
    content = path.read_bytes()
    spoilt = content[:100] + bytes(40) + content[140:]
    array = io.BytesIO()
    np.save(array, np.zeros(3))
    for damaged in (b"", content[:99], spoilt, b"text", array.getvalue()):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="an .npz file of.*damaged.npz"):
            ct.data.get(str(path))


def test_embeddings_in_a_bucket(own):
    images, labels = own
    for split in ("train", "calibration", "test"):
        x = images.reshape(30, -1)[:, :7].astype("float32")
        files.write_npz(f"ram://embeddings/{split}.npz", x=x, y=labels)
    data = ct.data.get("npz:ram://embeddings")
    assert data.is_embedded and data.num_examples["calibration"] == 30
    batch, ids, _ = next(iter(data.eval_batches("test", 30)))
    np.testing.assert_array_equal(batch, x)
    np.testing.assert_array_equal(ids, labels)
    files.write_npz("ram://embeddings/test.npz", features=x, y=labels)
    with pytest.raises(ValueError, match="'x' and 'y'.*'features'"):
        ct.data.get("npz:ram://embeddings")


def test_a_folder_needs_a_size_and_has_to_be_there(tmp_path, own):
    with pytest.raises(FileNotFoundError, match="folder of images by class"):
        ct.data.get(f"folder:{tmp_path}/missing", image_size=8)
    write_folder(tmp_path, *own)
    with pytest.raises(ValueError, match="`image_size` must be given"):
        ct.data.get(f"folder:{tmp_path}")
    with pytest.raises(FileNotFoundError):
        ct.data.get(f"npz:{tmp_path}/missing.npz")


@pytest.mark.parametrize("encoding", ["png", "jpeg"])
def test_any_images_of_tensorflow_datasets(tmp_path, encoding):
    import tensorflow_datasets as tfds

    rng = np.random.default_rng(0)
    sizes = [(8, 8)] * 20 if encoding == "png" else [(20, 24), (30, 18)] * 10
    grey = encoding == "png"
    images = [
        rng.integers(0, 256, (*size, 1 if grey else 3), dtype=np.uint8)
        for size in sizes
    ]
    shape = (8, 8, 1) if grey else (None, None, 3)
    features = {
        "image": tfds.features.Image(shape=shape, encoding_format=encoding),
        "label": tfds.features.ClassLabel(num_classes=4),
    }
    examples = [
        {"image": image, "label": index % 4}
        for index, image in enumerate(images)
    ]
    store(tmp_path, "shapes", "1.0.0", {"train": examples}, features)
    if not grey:
        with pytest.raises(ValueError, match="`image_size` must be given"):
            ct.data.get("shapes", tmp_path)
    size = None if grey else 12
    data = ct.data.get("shapes", tmp_path, image_size=size)
    assert data.num_classes == 4
    assert data.num_examples == {"train": 16, "calibration": 2, "test": 2}
    assert data.image_shape == ((8, 8, 3) if grey else (12, 12, 3))
    pixels, labels = pixels_of(data, "train")
    assert labels.tolist() == [index % 4 for index in range(16)]
    if grey:
        expected = np.repeat(np.stack(images[:16]), 3, axis=-1)
        np.testing.assert_array_equal(pixels, expected)
    batch, _ = next(iter(data.train_batches(8)))
    assert batch.shape == (8, *data.image_shape)


def test_other_sets_of_tensorflow_datasets_are_errors(tmp_path):
    import tensorflow_datasets as tfds

    features = {"text": tfds.features.Text()}
    examples = {"train": [{"text": "a"}]}
    store(tmp_path, "texts", "1.0.0", examples, features)
    with pytest.raises(ValueError, match="image classification set.*texts"):
        ct.data.get("texts", tmp_path)


def test_every_example_of_arrays_comes_once():
    images = np.arange(5 * 12, dtype=np.uint8).reshape(5, 2, 2, 3)
    data = ct.data.ArrayData(
        "mine",
        {"test": (images, [4, 3, 2, 1, 0])},
        preprocess=lambda images: images,
    )
    batches = list(data.eval_batches("test", 3))
    assert [len(batch[0]) for batch in batches] == [3, 3]
    weights = np.concatenate([batch[2] for batch in batches])
    np.testing.assert_array_equal(weights, [1, 1, 1, 1, 1, 0])
    seen = np.concatenate([batch[0] for batch in batches])[:5]
    np.testing.assert_array_equal(seen, images)
    labels = np.concatenate([batch[1] for batch in batches])[:5]
    np.testing.assert_array_equal(labels, [4, 3, 2, 1, 0])


def test_bad_arrays_are_an_error():
    images = np.zeros((2, 4, 4, 3), np.uint8)
    for pair in ((images * 1.0, [0, 1]), (images[0], [0]), (images, [0])):
        with pytest.raises(ValueError, match="`splits.*must be uint8 images"):
            ct.data.ArrayData("mine", {"test": pair})
    data = ct.data.ArrayData("mine", {"test": (images, [0, 1])})
    with pytest.raises(ValueError, match="`split` must be.*'train'"):
        data.eval_batches("train", 2)
