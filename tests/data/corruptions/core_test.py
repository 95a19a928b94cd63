import functools

import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from caltrain_tf.data.corruptions import core
from tests.data.corruptions import cases

corruptions = ct.data.corruptions
# The images here have the contrast and detail of CIFAR-10's, not its colours.
TOLERANCE = {"brightness": 0.3, "jpeg_compression": 0.5}
# Their strengths do not go one way, or not in levels of pixels.
NOT_MONOTONE = {"elastic_transform", "frost", "glass_blur", "motion_blur"}


@functools.cache
def compiled(name, severity, size, **options):
    return tf.function(
        corruptions.get(name, severity, **options),
        input_signature=[
            tf.TensorSpec([None, size, size, 3], tf.uint8),
            tf.TensorSpec([None], tf.int64),
        ],
    )


def corrupt(name, severity, images, places=None, **options):
    function = compiled(name, severity, images.shape[1], **options)
    places = range(len(images)) if places is None else places
    return function(images, tf.constant(list(places), tf.int64)).numpy()


def change(name, severity, images, **options):
    corrupted = corrupt(name, severity, images, **options)
    return np.abs(corrupted.astype(float) - images).mean()


def test_there_are_fifteen():
    assert len(corruptions.NAMES) == 15
    assert set(corruptions.NAMES) == set(cases.CIFAR10_C)
    assert set(core._REGISTRY) == set(corruptions.NAMES)
    for _, cifar, imagenet in core._REGISTRY.values():
        assert len(cifar) == len(imagenet) == 5


@pytest.mark.parametrize("name", corruptions.NAMES)
def test_the_change_is_that_of_the_published_sets(name):
    # Frost depends most on its draw, one of five photographs.
    repeats = 8 if name == "frost" else 1
    images = np.tile(cases.photographs(), (repeats, 1, 1, 1))
    changes = [change(name, severity, images) for severity in range(1, 6)]
    tolerance = TOLERANCE.get(name, 0.15)
    np.testing.assert_allclose(changes, cases.CIFAR10_C[name], rtol=tolerance)
    assert name in NOT_MONOTONE or (np.diff(changes) > 0).all()


@pytest.mark.parametrize("name", corruptions.NAMES)
def test_an_image_does_not_depend_on_its_batch(name):
    images = cases.photographs()[:5]
    places = np.array([7, 100, 8, 10**6, 0])
    whole = corrupt(name, 4, images, places)
    for order in ([3, 0, 4], [1], [2]):
        np.testing.assert_array_equal(
            corrupt(name, 4, images[order], places[order]), whole[order]
        )


@pytest.mark.parametrize("name", ["gaussian_noise", "frost"])
def test_places_seeds_and_severities_have_their_own_numbers(name):
    image = cases.photographs()[:1]
    noises = [
        corrupt(name, 3, image, [0]),
        corrupt(name, 3, image, [1]),
        corrupt(name, 3, image, [0], seed=1),
    ]
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert (noises[first] != noises[second]).any()


@pytest.mark.parametrize("name", corruptions.NAMES)
def test_large_images_have_the_strengths_of_imagenet(name):
    # Smaller than 224, but larger than what has those of CIFAR.
    images = np.stack([np.kron(cases.photographs()[0], np.ones((3, 3, 1)))])
    images = images.astype(np.uint8)
    function, cifar, imagenet = core._REGISTRY[name]
    first = corrupt(name, 3, images)[0]

    def changed(strengths):
        key = np.array([5 * corruptions.NAMES.index(name) + 3, 0], np.uint64)
        rng = np.random.Generator(np.random.Philox(key=key))
        return core.to_pixels(function(images[0] / 255, rng, *strengths[2]))

    np.testing.assert_array_equal(first, changed(imagenet))
    assert (first != changed(cifar)).any()


def test_it_is_a_transform_of_the_data_sets():
    digits = ct.data.get("digits")
    batches = {
        size: digits.eval_batches(
            "test", size, transform=corruptions.get("shot_noise", 5)
        )
        for size in (64, 50)
    }
    clean = next(iter(digits.eval_batches("test", 64)))[0]
    first, second = (next(iter(dataset))[0] for dataset in batches.values())
    np.testing.assert_array_equal(first[:50], second)
    assert (first != clean).numpy().any()


def test_bad_arguments_are_errors():
    for changes, message in (
        ({"name": "frosty"}, "Did you mean 'frost'.*name='frosty'"),
        ({"name": "spatter"}, "`name` must be one of.*name='spatter'"),
        ({"severity": 0}, "`severity` must be.*severity=0"),
        ({"seed": -1}, "`seed` must be.*seed=-1"),
    ):
        with pytest.raises(ValueError, match=message):
            corruptions.get(**{"name": "fog", "severity": 1, **changes})
    pixels = np.zeros((1, 8, 8, 3), np.uint8)
    for images in (pixels * 1.0, pixels[:, :4], pixels[..., :1], pixels[0]):
        with pytest.raises(ValueError, match="`images` must be.*Received"):
            corruptions.get("contrast", 1)(images, [0])


def test_the_noise_of_neighbours_is_independent():
    grey = np.full((2, 64, 64, 3), 128, np.uint8)
    sets = [
        corrupt("gaussian_noise", severity, grey, [0, place], seed=seed)
        for severity, place, seed in ((1, 1, 0), (2, 2**31, 0), (1, 2, 2**30))
    ]
    noises = np.concatenate(sets).reshape(6, -1)
    correlation = np.corrcoef(noises) - np.eye(6)
    # Five standard deviations of 12,288 independent pairs.
    assert np.abs(correlation).max() < 5 / np.sqrt(noises.shape[1])


def test_an_empty_batch_stays_empty():
    nothing = np.zeros((0, 8, 8, 3), np.uint8)
    assert corruptions.get("fog", 1)(nothing, []).shape == (0, 8, 8, 3)
