import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from caltrain_tf.data.passes import Passes
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


class Dataset:
    def eval_batches(self, batch_size, rows):
        return examples()


class Arrays:
    def array_batches(self, batch_size):
        return examples().as_numpy_iterator()


def passes(transforms, num_batches, kind=Arrays):
    return Passes(kind(), 1, transforms, num_batches, lambda *batch: batch)


@pytest.mark.parametrize("is_processor_alone", [True, False])
@pytest.mark.parametrize("kind", [Dataset, Arrays])
def test_each_transform_has_the_first_batches(
    kind, is_processor_alone, monkeypatch
):
    monkeypatch.setattr(
        "caltrain_tf.data.passes.is_processor_alone", lambda: is_processor_alone
    )
    batches = passes([add(0), add(50), add(90)], 4, kind)
    assert batches.image_shape == (2, 2, 3)
    assert len(batches) == len(list(batches)) == 3 * 4
    for index, (images, label, place) in enumerate(batches):
        which, row = divmod(index, 4)
        expected = IMAGES[row] + [0, 50, 90][which] + row
        np.testing.assert_array_equal(images, expected)
        assert int(label[0]) == int(place[0]) == row


def test_a_transform_must_keep_the_shape():
    halved = passes([lambda images, _: images[:, :1]], num_batches=4)
    with pytest.raises(ValueError, match=r"1, 2, 2, 3.*\(1, 1, 2, 3\)"):
        list(halved)


def test_an_error_is_one_of_the_caller():
    def late(images, places):
        if np.asarray(places)[0] == 2:
            raise ValueError("no third image")
        return images

    batches = iter(passes([add(0), late], num_batches=4))
    for _ in range(6):
        next(batches)
    with pytest.raises(ValueError, match="no third image"):
        next(batches)


def test_a_program_that_an_error_stops_in_the_middle_ends(tmp_path):
    script = tmp_path / "stops.py"
    script.write_text(
        "import numpy as np\n"
        "import caltrain_tf as ct\n"
        "images = np.zeros((640, 32, 32, 3), np.uint8)\n"
        "test = (images, images[:, 0, 0, 0])\n"
        "data = ct.data.ArrayData('mine', {'test': test})\n"
        "sets = ct.data.GeneratedSets(data)\n"
        "for _ in sets.walk([('elastic_transform', 3)] * 9, 64, 10):\n"
        "    raise ValueError('in the middle')\n"
    )
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 1
    assert "ValueError: in the middle" in done.stderr
