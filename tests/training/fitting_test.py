"""Runs end the same, whether or not they were killed."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from tests.training import tiny
from tests.training import tiny_run

ROOT = pathlib.Path(__file__).parents[2]


def _start(path, *options):
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "tests.training.tiny_run", path, *options],
        env=environment,
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )


def _run(path, *options):
    with _start(path, *options) as process:
        messages = process.communicate()[1]
    return process.returncode, messages


def test_killed_runs_end_in_the_same_weights(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    with _start(whole) as undisturbed:
        # The fourth save is the one at the end of the first epoch.
        ends = [
            _run(killed, option)
            for option in ("--kill_in_save=4", "--kill_at_step=9")
        ]
        ends += [_run(killed, "--term_at_step=14"), _run(killed)]
        undisturbed.communicate()
    assert undisturbed.returncode == 0
    assert [code for code, _ in ends] == [-9, -9, 143, 0]
    assert "ckpt-6 is damaged and passed over" in ends[1][1]

    with np.load(whole / "end.npz") as one, np.load(killed / "end.npz") as two:
        assert one.files == two.files
        for name in one.files:
            np.testing.assert_array_equal(one[name], two[name])
    log = (whole / "metrics.jsonl").read_text()
    assert len(log.splitlines()) == tiny_run.EPOCHS
    assert (killed / "metrics.jsonl").read_text() == log
    for folder in ("checkpoints", "checkpoints/best"):
        names = [
            sorted(
                name
                for name in os.listdir(path / folder)
                if name.endswith(".index")
            )
            for path in (whole, killed)
        ]
        assert names[0] == names[1]


def test_the_same_call_goes_on(tmp_path):
    def fit(epochs, path):
        trained = tiny_run.make_trainer()
        rows = trained.fit(tiny.shuffled, epochs, run=path, verbose=False)
        return trained, rows

    whole, _ = fit(4, tmp_path / "whole")
    fit(2, tmp_path / "parts")
    parts, rows = fit(4, tmp_path / "parts")
    tiny.assert_same_weights(whole, parts)
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4]
    assert [row["step"] for row in rows] == [4, 8, 12, 16]
    # All done: nothing is trained any more.
    again, rows = fit(4, tmp_path / "parts")
    tiny.assert_same_weights(whole, again)
    assert len(rows) == 4


def test_sigterm_between_steps_saves(tmp_path):
    trained = tiny.trainer(steps_per_execution=1)
    train = trained._execution.train

    def train_and_terminate(iterator, num_steps, first_step):
        if first_step == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return train(iterator, num_steps, first_step)

    trained._execution.train = train_and_terminate
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ct.training.Preempted) as stopped:
        trained.fit(tiny.dataset(), 2, run=tmp_path, verbose=False)
    assert stopped.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is before
    names = os.listdir(tmp_path / "checkpoints")
    assert "ckpt-2.index" in names


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path):
    x, y = tiny.arrays()
    broken = x.copy()
    broken[37] = np.nan

    def data(epoch):
        rows = broken if epoch == 1 else x
        dataset = tf.data.Dataset.from_tensor_slices((rows, y))
        return dataset.batch(16, drop_remainder=True)

    trained = tiny.trainer(l2=0.01)
    message = r"step 6: loss=nan, primary_loss=nan, .*l2_loss=0\.\d+"
    with pytest.raises(ct.training.NonFiniteLossError, match=message):
        trained.fit(data, 3, run=tmp_path, verbose=False)
    checkpoints = tf.train.latest_checkpoint(tmp_path / "checkpoints")
    assert checkpoints.endswith("ckpt-4")


def test_best_is_the_lowest_logged_value(tmp_path):
    values = iter([3.0, 1.0, float("nan"), 2.0])
    trained = tiny.trainer()
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
    fresh = tiny.network()
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


def test_interleaves_two_losses():
    majority = tiny.dataset(48)
    held_out = tiny.dataset(32, seed=1)
    calibration = ct.losses.SBECE(from_logits=True)
    together = tiny.trainer()
    rows = together.fit(
        majority,
        2,
        held_out=held_out,
        calibration_loss=calibration,
        verbose=False,
    )
    assert [row["step"] for row in rows] == [5, 10]
    assert {"train/primary_loss", "held_out/loss"} <= set(rows[0])

    apart = tiny.trainer()
    other = ct.training.Trainer(
        apart.model, calibration, apart.optimizer, apart.strategy
    )
    for _ in range(2):
        apart.fit(majority, 1, verbose=False)
        other.fit(held_out, 1, verbose=False)
    tiny.assert_same_weights(together, apart)


def test_refuses_what_does_not_fit(two_replicas, tmp_path):
    trained = tiny.trainer()
    data = tiny.dataset()
    with pytest.raises(ValueError, match="held_out.*go together"):
        trained.fit(data, 1, held_out=data)
    with pytest.raises(ValueError, match="Pass `dataset_steps`"):
        trained.fit(data.filter(lambda x, y: True), 1)
    with pytest.raises(ValueError, match="dataset_steps=9, batches=4"):
        trained.fit(data, 1, dataset_steps=9)
    with pytest.raises(ValueError, match="best='test/ece'"):
        trained.fit(data, 1, evaluations={"test": data}, best="test/ece")
    with pytest.raises(ValueError, match="must be a `tf.data.Dataset`"):
        trained.fit([1, 2], 1)
    with pytest.raises(ValueError, match="keep=1"):
        trained.fit(data, 1, run=tmp_path, keep=1)
    replicated = tiny.trainer(two_replicas)
    ragged = tiny.dataset(drop_remainder=False)
    with pytest.raises(ValueError, match="drop_remainder=True"):
        replicated.fit(ragged, 1)
    with pytest.raises(ValueError, match="batch size=5, replicas=2"):
        replicated.fit(tiny.dataset(batch=5), 1)


def test_unknown_number_of_batches_with_steps():
    trained = tiny.trainer()
    endless = tiny.dataset().repeat()
    rows = trained.fit(endless, 2, dataset_steps=3, verbose=False)
    assert rows[-1]["step"] == 6
