import os

import numpy as np
import pytest
import tensorflow as tf

from caltrain_tf.training import Summaries


def _values(folder):
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        for event in tf.compat.v1.train.summary_iterator(path):
            for value in event.summary.value:
                yield event.step, value


def test_scalars_images_and_hyperparameters(tmp_path):
    summaries = Summaries(str(tmp_path))
    summaries.scalars({"test/ece": 0.25}, step=7)
    image = np.random.default_rng(0).integers(0, 255, (4, 6, 3), "uint8")
    summaries.image("array", image, step=7)
    summaries.image("png", tf.io.encode_png(image).numpy(), step=7)
    summaries.hyperparameters({"loss": {"beta": 1.0}, "seed": 0})
    summaries.close()
    values = {value.tag: (step, value) for step, value in _values(tmp_path)}
    step, ece = values["test/ece"]
    assert step == 7
    assert tf.make_ndarray(ece.tensor) == 0.25
    for tag in ("array", "png"):
        width, height, png = tf.make_ndarray(values[tag][1].tensor)
        assert (width, height) == (b"6", b"4")
        np.testing.assert_array_equal(tf.io.decode_png(png), image)
    text = str(tf.make_ndarray(values["hyperparameters"][1].tensor))
    assert '| loss | `{"beta": 1.0}` |' in text


def test_without_a_folder_nothing_happens():
    summaries = Summaries()
    summaries.scalars({"test/ece": 0.25}, step=7)
    summaries.close()


def test_an_image_needs_channels():
    with pytest.raises(ValueError, match=r"shape=\(4, 6\)"):
        Summaries().image("bad", np.zeros((4, 6)), step=0)
