import os
import time

import numpy as np
import pytest
import tensorflow as tf

from caltrain_tf.data.passes import BATCHES_AHEAD
from caltrain_tf.data.passes import in_passes
from caltrain_tf.data.passes import transformed

IMAGES = np.arange(6 * 12, dtype=np.uint8).reshape(6, 1, 2, 2, 3)


def examples():
    return tf.data.Dataset.from_tensor_slices(
        (IMAGES, np.arange(6)[:, np.newaxis], np.arange(6)[:, np.newaxis])
    )


def add(amount):
    def transform(images, places):
        return images + tf.cast(amount + places, tf.uint8)

    return transform


def test_a_transform_gets_the_places():
    for place, (images, label, _) in enumerate(transformed(examples(), add(5))):
        np.testing.assert_array_equal(images, IMAGES[place] + 5 + place)
        assert int(label[0]) == place


def test_each_transform_has_the_first_batches():
    passes = in_passes(examples(), [add(0), add(50), add(90)], num_batches=4)
    assert passes.element_spec[0].shape == (1, 2, 2, 3)
    batches = list(passes)
    assert len(batches) == 3 * 4
    for index, (images, label, place) in enumerate(batches):
        which, row = divmod(index, 4)
        expected = IMAGES[row] + [0, 50, 90][which] + row
        np.testing.assert_array_equal(images, expected)
        assert int(label[0]) == int(place[0]) == row


def test_an_error_is_one_of_the_caller():
    def late(images, places):
        if np.asarray(places)[0] == 2:
            raise ValueError("no third image")
        return images

    passes = iter(in_passes(examples(), [add(0), late], num_batches=4))
    for _ in range(6):
        next(passes)
    with pytest.raises(tf.errors.InvalidArgumentError, match="no third image"):
        next(passes)


def test_only_a_few_are_made_ahead():
    made = []

    def count(images, places):
        made.append(places)
        return images

    def settled():
        before = -1
        while len(made) > before:
            before = len(made)
            time.sleep(0.1)
        return before

    passes = in_passes(examples(), [count] * 100, num_batches=6)
    passes = iter(passes.prefetch(BATCHES_AHEAD))
    next(passes)
    # And those that are under way in parallel.
    assert settled() <= 1 + BATCHES_AHEAD + 2 * os.cpu_count()
