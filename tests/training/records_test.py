import json
import os

import keras
import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from tests.training import tiny


def _network():
    return tiny.network(keras.layers.BatchNormalization(), dropout=0.1)


def test_best_is_the_lowest_logged_value(tmp_path):
    values = iter([float("nan"), 1.0, float("nan"), 2.0])
    trained = tiny.trainer(make_network=_network)
    trained.evaluate = lambda dataset: {"loss": next(values)}
    after = {}

    def remember(row, summaries):
        del summaries
        after[row["epoch"]] = tiny.weights(trained)

    trained.fit(
        tiny.dataset(32),
        4,
        evaluations={"calibration": tiny.dataset()},
        best="calibration/loss",
        run=tmp_path,
        on_epoch_end=remember,
        verbose=False,
    )
    fresh = _network()
    folder = tmp_path / "checkpoints"
    path = ct.training.restore_model(folder, fresh, which="best")
    assert path.endswith("best-4")
    for left, right in zip(after[2], fresh.weights, strict=True):
        np.testing.assert_array_equal(left, right.numpy())
    path = ct.training.restore_model(folder, fresh)
    assert path.endswith("ckpt-8")
    for left, right in zip(after[4], fresh.weights, strict=True):
        np.testing.assert_array_equal(left, right.numpy())


def test_writes_what_a_run_has(tmp_path):
    accuracy = keras.metrics.SparseCategoricalAccuracy("accuracy")
    trained = tiny.trainer(metrics=[accuracy])

    def draw(row, summaries):
        image = np.zeros((4, 6, 3), "uint8")
        summaries.image("reliability", image, row["step"])

    rows = trained.fit(
        tiny.dataset(32),
        2,
        evaluations={"test": tiny.dataset(10, 4)},
        evaluate_every=2,
        run=tmp_path,
        config={"seed": 1},
        on_epoch_end=draw,
        verbose=False,
    )
    assert json.loads((tmp_path / "config.json").read_text()) == {"seed": 1}
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == rows
    assert "test/accuracy" not in rows[0]
    assert {"train/accuracy", "train/loss", "test/accuracy"} <= set(rows[1])
    assert rows[1]["test/accuracy"] == pytest.approx(
        trained.evaluate(tiny.dataset(10, 4))["accuracy"]
    )
    tags = set()
    for name in os.listdir(tmp_path / "summaries"):
        path = str(tmp_path / "summaries" / name)
        for event in tf.compat.v1.train.summary_iterator(path):
            tags.update(value.tag for value in event.summary.value)
    assert {"train/loss", "reliability", "hyperparameters"} <= tags
