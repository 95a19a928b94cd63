import os
import subprocess
import sys

import numpy as np
import pytest

import caltrain_tf as ct


def test_a_mistyped_name_gets_the_nearest():
    with pytest.raises(ValueError, match="mean 'cifar10'.*name='cifar-10'"):
        ct.data.get("cifar-10")
    with pytest.raises(ValueError, match="`name` must be one of"):
        ct.data.get(None)


def test_image_size_is_for_imagenet_only():
    with pytest.raises(ValueError, match="`image_size` .*Received"):
        ct.data.get("digits", image_size=64)


def test_tensorflow_datasets_is_imported_when_it_is_needed():
    script = (
        "import sys, caltrain_tf as ct\n"
        "print('caltrain_tf.data' in sys.modules)\n"
        "next(iter(ct.data.get('digits').train_batches(8)))\n"
        "print('tensorflow_datasets' in sys.modules)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script],
        env=dict(os.environ),
        capture_output=True,
        check=True,
        text=True,
    )
    assert result.stdout == "False\nFalse\n"


def test_training_images_are_left_alone_without_augmentation():
    data = ct.data.get("digits", augment=False)
    images, labels = next(iter(data.train_batches(1150)))
    plain, ids, _ = next(iter(data.eval_batches("train", 1150)))

    def order(images, labels):
        rows = np.c_[labels, np.reshape(images, (1150, -1))]
        return rows[np.lexsort(rows.T)]

    np.testing.assert_array_equal(order(images, labels), order(plain, ids))


def test_imagenet_is_always_augmented():
    with pytest.raises(ValueError, match="`augment` .*Received: augment=False"):
        ct.data.get("imagenet", augment=False)
