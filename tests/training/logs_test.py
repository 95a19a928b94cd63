import json
import os

import numpy as np
import pytest
import tensorflow as tf

from caltrain_tf.training import MetricsLog, Summaries
from caltrain_tf.training.logs import epoch_text, progress_bar


def test_round_trip(tmp_path):
    path = str(tmp_path / "metrics.jsonl")
    rows = [{"step": 1, "train/loss": 0.1}, {"step": 2, "train/loss": 1 / 3}]
    log = MetricsLog(path)
    for row in rows:
        log.append(row)
    assert MetricsLog(path).rows == rows
    with open(path) as file:
        assert [json.loads(line) for line in file] == rows


def test_rewinding_forgets_later_lines(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"step": 4}\n')
    log = MetricsLog(str(path))
    log.rewind(2)
    log.append({"step": 3})
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n{"step": 3}\n'


def test_what_is_not_finite_is_null(tmp_path):
    path = tmp_path / "metrics.jsonl"
    MetricsLog(str(path)).append({"step": 1, "test/ece": float("nan")})
    assert json.loads(path.read_text()) == {"step": 1, "test/ece": None}


def test_in_memory():
    log = MetricsLog()
    log.append({"step": 1})
    log.rewind(0)
    assert log.rows == []


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


def test_a_bar_over_the_steps(capsys):
    with progress_bar(100, first_step=20) as bar:
        bar.update(40)
    shown = capsys.readouterr().err
    assert "60/100" in shown and "step/s" in shown
    with progress_bar(100, shown=False):
        pass
    assert capsys.readouterr().err == ""


def test_the_text_of_an_epoch():
    row = {"epoch": 2, "step": 8, "train/loss": 0.5, "train/l2_loss": 0.1}
    text = epoch_text({**row, "test/ece": 0.25}, 3)
    assert text == "epoch 2/3\n  train: loss 0.5000\n  test: ece 0.2500"
