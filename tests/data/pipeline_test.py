import hashlib

import keras
import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from caltrain_tf.data.pipeline import shift_and_flip


@pytest.fixture(scope="module")
def digits():
    return ct.data.get("digits")


def fingerprints(*arrays):
    """A name for each example, by its pixels."""
    return [
        hashlib.sha256(np.asarray(image).tobytes()).hexdigest()
        for images in arrays
        for image in images
    ]


def batches_of(dataset):
    return [tuple(np.asarray(part) for part in batch) for batch in dataset]


def assert_same(first, second):
    for one, other in zip(first, second, strict=True):
        for left, right in zip(one, other, strict=True):
            np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize(
    "split, batch_size",
    [("test", 1), ("test", 600), ("train", 100), ("calibration", 2000)],
)
def test_evaluation_counts_every_example_once(digits, split, batch_size):
    size = digits.num_examples[split]
    batches = batches_of(digits.eval_batches(split, batch_size))
    assert {images.shape for images, _, _ in batches} == {
        (batch_size, 32, 32, 3)
    }
    weights = np.concatenate([weight for _, _, weight in batches])
    assert weights.dtype == np.float32
    assert weights.tolist() == [1.0] * size + [0.0] * (-size % batch_size)
    seen = fingerprints(*(images for images, _, _ in batches))[:size]
    assert len(set(seen)) == size


def test_an_epoch_is_a_function_of_seed_and_epoch(digits):
    first = batches_of(digits.train_batches(128, epoch=5, seed=3))
    tf.random.set_seed(77)
    list(digits.train_batches(64, epoch=1, seed=3))
    again = ct.data.get("digits").train_batches(128, epoch=5, seed=3)
    assert_same(first, batches_of(again))
    for options in ({"epoch": 4, "seed": 3}, {"epoch": 5, "seed": 2}):
        other = batches_of(digits.train_batches(128, **options))
        assert (other[0][1] != first[0][1]).any()


def test_an_epoch_can_start_at_any_step(digits):
    whole = batches_of(digits.train_batches(90, epoch=2, seed=1))
    assert len(whole) == digits.steps_per_epoch(90) == 8
    for first_step in (0, np.int64(4), 7, 8):
        rest = digits.train_batches(90, epoch=2, seed=1, first_step=first_step)
        assert len(rest) == 8 - first_step
        assert_same(batches_of(rest), whole[first_step:])


def test_augmentation_does_not_depend_on_the_batch_size(digits):
    small = batches_of(digits.train_batches(10, epoch=2))
    large = batches_of(digits.train_batches(50, epoch=2))
    for column in range(2):
        np.testing.assert_array_equal(
            np.concatenate([batch[column] for batch in small]),
            np.concatenate([batch[column] for batch in large]),
        )


def test_training_batches_hold_shifted_training_images(digits):
    clean = np.concatenate(
        [images for images, _, _ in digits.eval_batches("train", 800)]
    )
    labels = np.concatenate(
        [labels for _, labels, _ in digits.eval_batches("train", 800)]
    )
    # The middle of each training image is somewhere near the middle of one.
    windows = {
        clean[
            index, 4 + down : 28 + down, 4 + right : 28 + right
        ].tobytes(): index
        for index in range(len(clean))
        for down in range(-2, 3)
        for right in range(-2, 3)
    }
    found = []
    for images, ids in batches_of(digits.train_batches(100, epoch=1)):
        for image, label in zip(images, ids, strict=True):
            index = windows[image[4:28, 4:28].tobytes()]
            assert labels[index] == label
            found.append(index)
    assert sorted(found) == list(range(800))


def test_shards_make_up_the_global_batch(digits):
    whole = digits.train_batches(96, epoch=1, first_step=3)
    shards = [
        digits.train_batches(96, epoch=1, first_step=3, shard=(index, 3))
        for index in range(3)
    ]
    for batch, *parts in zip(whole, *shards, strict=True):
        for column in range(2):
            np.testing.assert_array_equal(
                batch[column], np.concatenate([part[column] for part in parts])
            )
    weights = [
        np.concatenate([batch[2] for batch in shard])
        for shard in (
            digits.eval_batches("test", 100, shard=(index, 2))
            for index in range(2)
        )
    ]
    assert np.sum(weights) == 600


def test_batches_have_static_shapes_and_the_asked_dtype():
    data = ct.data.get("digits", dtype="uint8")
    spec = (
        tf.TensorSpec((32, 32, 32, 3), tf.uint8),
        tf.TensorSpec((32,), tf.int32),
    )
    assert data.train_batches(32).element_spec == spec
    assert data.eval_batches("test", 32).element_spec == (
        *spec,
        tf.TensorSpec((32,), tf.float32),
    )


def test_a_transform_sees_pixels_and_places(digits):
    def number(images, places):
        assert images.dtype == tf.uint8
        return (
            tf.zeros_like(images)
            + tf.cast(places % 251, tf.uint8)[
                :, tf.newaxis, tf.newaxis, tf.newaxis
            ]
        )

    spec = ct.data.SPECS["digits"]
    dataset = digits.eval_batches("test", 200, transform=number)
    pixels = np.concatenate([images[:, 0, 0, 0] for images, _, _ in dataset])
    pixels = (pixels * spec.std[0] + spec.mean[0]) * 255
    np.testing.assert_allclose(pixels, np.arange(600) % 251, atol=1e-3)


def test_interleaved_parts_make_up_the_training_set(digits):
    majority, held_out = digits.interleaved(0.2)
    assert majority.num_examples == {**digits.num_examples, "train": 640}
    assert held_out.num_examples == {**digits.num_examples, "train": 160}
    seen = [
        fingerprints(images[weights == 1])
        for data in (digits, majority, held_out)
        for images, _, weights in data.eval_batches("train", 800)
    ]
    assert seen[0] == seen[1] + seen[2]
    assert len(batches_of(held_out.train_batches(16))) == 10
    again, _ = majority.interleaved(0.5)
    assert again.num_examples["train"] == 320


def test_bad_arguments_are_errors(digits):
    for fraction in (0.0, 1.0, -0.1, 1e-6, "0.1"):
        with pytest.raises(ValueError, match="`held_out_fraction` .*Received"):
            digits.interleaved(fraction)
    for batch_size, shard in ((1151, (0, 1)), (0, (0, 1)), (9, (0, 2))):
        with pytest.raises(ValueError, match="Received: batch_size="):
            digits.train_batches(batch_size, shard=shard)
    with pytest.raises(ValueError, match="Received: batch_size="):
        digits.eval_batches("test", 9, shard=(0, 2))
    with pytest.raises(ValueError, match="`split` .*Received: split='val'"):
        digits.eval_batches("val", 10)
    with pytest.raises(ValueError, match="`dtype` .*Received: dtype='int8'"):
        ct.data.get("digits", dtype="int8")


OFF = tf.data.experimental.AutoShardPolicy.OFF


def test_every_pipeline_is_in_order_and_without_the_tuning_thread(digits):
    for dataset in (
        digits.train_batches(32),
        digits.eval_batches("test", 32),
        # As `Trainer` goes on with it.
        digits.eval_batches("test", 4).prefetch(2),
    ):
        options = dataset.options()
        assert options.deterministic
        assert options.autotune.enabled is False
        assert options.experimental_distribute.auto_shard_policy == OFF


@pytest.mark.parametrize("hosts, replicas", [(1, 1), (1, 4), (2, 4), (3, 3)])
def test_what_hosts_read_is_the_global_batch(digits, hosts, replicas):
    contexts = [
        tf.distribute.InputContext(hosts, host, replicas)
        for host in range(hosts)
    ]
    build = digits.train_input(24, seed=3)
    whole = batches_of(digits.train_batches(24, epoch=2, seed=3, first_step=5))
    parts = [build(2, context, first_step=5) for context in contexts]
    evaluate = digits.eval_input("test", 24)
    for expected, datasets in (
        (whole, parts),
        (
            batches_of(digits.eval_batches("test", 24)),
            [evaluate(context) for context in contexts],
        ),
    ):
        local = replicas // hosts
        for dataset in datasets:
            assert len(dataset) == len(expected) * local
            assert dataset.element_spec[0].shape[0] == 24 // replicas
        per_host = [batches_of(dataset) for dataset in datasets]
        for step, batch in enumerate(expected):
            # Host by host, and of each its replicas in their order.
            together = [
                host[step * local + replica]
                for host in per_host
                for replica in range(local)
            ]
            for column, values in enumerate(batch):
                joined = np.concatenate([part[column] for part in together])
                np.testing.assert_array_equal(values, joined)
    if replicas > 1:
        with pytest.raises(ValueError, match="divisible|multiple"):
            digits.train_input(25)(0, contexts[0])


def test_a_strategy_reads_what_the_host_builds(digits, two_replicas):
    build = digits.train_input(64)
    distributed = two_replicas.distribute_datasets_from_function(
        lambda context: build(1, context)
    )
    for batch, per_replica in zip(
        digits.train_batches(64, epoch=1), distributed, strict=True
    ):
        for column in range(2):
            parts = two_replicas.experimental_local_results(per_replica[column])
            np.testing.assert_array_equal(batch[column], np.concatenate(parts))


def test_normalized_pixels_equal_the_formula(digits):
    spec = ct.data.SPECS["digits"]
    raw = ct.data.get("digits", dtype="uint8")
    pixels, _, _ = next(iter(raw.eval_batches("train", 800)))
    images, _, _ = next(iter(digits.eval_batches("train", 800)))
    expected = (np.asarray(pixels) / 255 - spec.mean) / np.array(spec.std)
    # Rounding reaches 2.7e-7; a step of one pixel value is 0.012.
    np.testing.assert_allclose(images, expected, atol=3e-6)
    # The constants have four digits.
    assert np.mean(images) == pytest.approx(0, abs=1e-3)
    assert np.std(images) == pytest.approx(1, abs=1e-3)


def test_a_rescaling_layer_normalises_pixels(digits):
    raw = ct.data.get("digits", dtype="uint8")
    pixels, labels, _ = next(iter(raw.eval_batches("test", 16)))
    expected, ids, _ = next(iter(digits.eval_batches("test", 16)))
    assert pixels.dtype == tf.uint8
    np.testing.assert_array_equal(labels, ids)
    layer = keras.layers.Rescaling(**raw.rescaling, dtype="float32")
    layer = keras.layers.Rescaling.from_config(layer.get_config())
    # Up to a fused multiply-add: one rounding of values of at most 3.
    np.testing.assert_allclose(layer(pixels), expected, atol=3e-6)
    # Black pixels of the augmentation are black, not grey.
    batches = zip(raw.train_batches(16), digits.train_batches(16), strict=True)
    for (pixels, _), (expected, _) in batches:
        np.testing.assert_allclose(layer(pixels), expected, atol=3e-6)


def test_the_order_of_an_epoch_stays_what_it_is():
    # A change here changes the batches of every run with a given seed.
    images = np.zeros((8, 2, 2, 3), np.uint8)
    data = ct.data.ArrayData("eight", {"train": (images, np.arange(8))})
    orders = [
        next(iter(data.train_batches(8, seed=seed, epoch=epoch)))[1].numpy()
        for seed, epoch in ((1, 2), (2, 1), (1, 3))
    ]
    assert orders[0].tolist() == [7, 0, 5, 4, 6, 2, 3, 1]
    assert all((order != orders[0]).any() for order in orders[1:])


def one_by_one(images, shifts, flips, max_shift):
    margin = (max_shift, max_shift)
    results = []
    for image, (down, right), flip in zip(images, shifts, flips, strict=True):
        height, width, _ = image.shape
        padded = np.pad(image, (margin, margin, (0, 0)))
        top, left = max_shift + down, max_shift + right
        crop = padded[top : top + height, left : left + width]
        results.append(crop[:, ::-1] if flip else crop)
    return np.stack(results)


@pytest.mark.parametrize(
    "shape, max_shift", [((32, 32, 3), 4), ((5, 8, 1), 1), ((5, 8, 1), 0)]
)
def test_augmentation_equals_pad_crop_and_mirror_of_each_image(
    shape, max_shift
):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (50, *shape), dtype=np.uint8)
    shifts = rng.integers(-max_shift, max_shift + 1, (50, 2)).astype("int32")
    flips = rng.random(50) < 0.5
    result = shift_and_flip(images, shifts, flips, max_shift)
    assert result.shape == images.shape
    np.testing.assert_array_equal(
        result, one_by_one(images, shifts, flips, max_shift)
    )
