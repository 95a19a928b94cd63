import json
import os

import numpy as np
import tensorflow as tf

from caltrain_tf.training import MetricsLog, Summaries
from caltrain_tf.training.logs import epoch_text, format_time, progress_bar


def test_rows_are_read_again_and_rewound(tmp_path):
    path = tmp_path / "metrics.jsonl"
    rows = [{"step": step, "train/loss": step / 3} for step in (1, 2, 3)]
    log = MetricsLog(str(path))
    for row in rows:
        log.append(row)
    lines = path.read_text().splitlines()
    assert [json.loads(line) for line in lines] == rows
    again, in_memory = MetricsLog(str(path)), MetricsLog()
    assert again.rows == rows and in_memory.rows == []
    again.rewind(1)
    again.append({"step": 2})
    assert MetricsLog(str(path)).rows == [rows[0], {"step": 2}]


def test_the_lowest_value_and_what_is_not_finite(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(str(path))
    log.append({"step": 1, "test/ece": float("nan")})
    assert json.loads(path.read_text()) == {"step": 1, "test/ece": None}
    assert log.lowest("test/ece") == float("inf")
    log.append({"step": 2, "test/ece": 0.5})
    assert MetricsLog(str(path)).lowest("test/ece") == 0.5


def test_scalars_images_and_hyperparameters(tmp_path):
    summaries = Summaries(str(tmp_path))
    summaries.scalars({"test/ece": 0.25}, step=7)
    image = np.random.default_rng(0).integers(0, 255, (4, 6, 3), "uint8")
    summaries.image("array", image, step=7)
    summaries.image("png", tf.io.encode_png(image).numpy(), step=7)
    summaries.hyperparameters({"loss": {"beta": 1.0}, "seed": 0})
    summaries.close()
    values = {}
    for name in os.listdir(tmp_path):
        path = str(tmp_path / name)
        for event in tf.compat.v1.train.summary_iterator(path):
            for value in event.summary.value:
                tensor = tf.make_ndarray(value.tensor)
                values[value.tag] = (event.step, tensor)
    assert values["test/ece"] == (7, 0.25)
    for tag in ("array", "png"):
        width, height, png = values[tag][1]
        assert (width, height) == (b"6", b"4")
        np.testing.assert_array_equal(tf.io.decode_png(png), image)
    assert '| loss | `{"beta": 1.0}` |' in str(values["hyperparameters"][1])
    nothing = Summaries()
    nothing.scalars({"test/ece": 0.25}, step=7)
    nothing.close()


def test_a_bar_over_the_steps(capsys):
    with progress_bar(100, first_step=20) as bar:
        bar.update(40)
    shown = capsys.readouterr().err
    assert "60/100" in shown and "step/s" in shown
    with progress_bar(100, shown=False):
        pass
    assert capsys.readouterr().err == ""


def test_texts():
    row = {"epoch": 2, "step": 8, "train/loss": 0.5, "train/l2_loss": 0.1}
    text = epoch_text({**row, "test/ece": 0.25}, 3)
    assert text == "epoch 2/3\n  train: loss 0.5000\n  test: ece 0.2500"
    times = [format_time(seconds) for seconds in (59, 61, 3600 * 26)]
    assert times == ["59s", "1m01s", "26h00m"]
