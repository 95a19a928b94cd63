import os
import subprocess
import sys

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
