import json
import pathlib
import signal
import time

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import caltrain_tf as ct
from caltrain_tf.experiments import build, prediction_files, shift
from tests.baselines.scripts import ROOT, run_here, start
from tests.experiments.configs import TINY_FLAGS, tiny, train
from tests.training.workers_test import ends, start_workers


def arguments(output_dir):
    settings = {**TINY_FLAGS, "epochs": 2}
    return [
        f"--config={ROOT / 'configs' / 'quickstart.py'}",
        "--primary=focal",
        "--secondary=sb_ece",
        f"--output_dir={output_dir}",
        *(f"--config.{key}={value}" for key, value in settings.items()),
    ]


def kill_when(process, condition):
    while process.poll() is None and not condition():
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()


def assert_same(killed, whole):
    for name in ("results.json", "metrics.jsonl", "config.json"):
        assert (killed / name).read_text() == (whole / name).read_text(), name
    for split in ("calibration", "test"):
        name = f"predictions/{split}.npz"
        expected = prediction_files.load(whole / name)
        actual = prediction_files.load(killed / name)
        np.testing.assert_array_equal(actual[0], expected[0])


def read(folder, name="results.json"):
    return json.loads((folder / name).read_text())


def test_interleaved_training(trained):
    folder, results = trained, read(trained)
    (row,) = map(
        json.loads, (folder / "metrics.jsonl").read_text().splitlines()
    )
    # 63 and 33 examples in batches of 32.
    assert row["step"] == 2
    assert row["held_out/primary_loss"] == 0
    assert row["held_out/secondary_loss"] > 0
    assert row["train/secondary_loss"] == 0
    logits, labels = prediction_files.load(folder / "predictions" / "test.npz")
    assert logits.shape == (600, 10) and labels.shape == (600,)
    assert (folder / "reliability.png").read_bytes()[1:4] == b"PNG"
    assert list((folder / "summaries").iterdir())
    assert 0 < results["train_ece_l1"] < 1 and results["ece_debiased"] >= 0
    ratio = results["ece_l1"] / results["train_ece_l1"]
    assert results["test_to_train_ece_l1"] == pytest.approx(ratio)
    # The mean over 10 classes, and their sum.
    assert results["marginal_ece_sum"] == pytest.approx(
        10**0.5 * results["marginal_ece"]
    )
    # Once it is finished, nothing is read but its results.
    again = run_here("cifar/train.py", f"--resume={folder}", "--data_dir=/no")
    assert "nll+s_avuc-interleaved on digits, test split" in again.stdout
    # All of it measured on the training images as they are.
    _, data, model = shift.load_run(folder)
    images, labels, _ = next(iter(data.eval_batches("train", 96)))
    assert results["train_ece_l1"] == pytest.approx(
        ct.metrics.calibration_error(
            model.predict(images, verbose=0),
            labels,
            norm=1,
            binning="equal_width",
            from_logits=True,
        ),
        abs=1e-5,
    )


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The file of a network that knows digits before it is trained."""
    network = keras.Sequential(
        [
            keras.Input([32, 32, 3]),
            keras.layers.AveragePooling2D(4),
            keras.layers.Flatten(),
            keras.layers.Dense(10),
        ]
    )
    # By least squares.
    data = build.data(tiny())
    images, labels, _ = next(iter(data.eval_batches("train", 96)))
    normalize = keras.layers.Rescaling(**data.rescaling)
    rows = keras.Model(network.inputs, network.layers[-1].input)
    inverse = np.linalg.pinv(rows(normalize(images)), rcond=0.03)
    kernel = inverse @ np.eye(10)[labels]
    network.layers[-1].set_weights([10 * kernel, np.zeros(10)])
    path = tmp_path_factory.mktemp("small") / "small.keras"
    network.save(path)
    return str(path)


def test_a_network_of_a_file_in_a_bucket(trained, small):
    config = tiny()
    config.epochs = 1
    config.optimizer.decay_epochs = ()
    config.optimizer.learning_rate = 1e-6
    config.model = config.init_from = small
    results = train(config, "ram://bucket/train")
    assert results["accuracy"] > 0.5
    there = tf.io.gfile.listdir("ram://bucket/train")
    local = {path.name for path in trained.iterdir()} - {".lock"}
    assert set(there) == local
    assert not pathlib.Path("ram:").exists()
    logits, _ = prediction_files.load("ram://bucket/train/predictions/test.npz")
    assert logits.shape == (600, 10)
    trained = ct.models.load("ram://bucket/train/model.keras")
    assert trained.count_params() == ct.models.load(small).count_params()
    assert train(config, "ram://bucket/train") == results


def test_a_run_ends_with_its_best_epoch_killed_or_not(small, tmp_path):
    settings = {
        "model": small,
        "init_from": small,
        "epochs": 4,
        # It forgets in every epoch: the first one is the best.
        "optimizer.learning_rate": 0.1,
        "optimizer.warmup_epochs": 0,
    }

    def command(folder, *more):
        flags = [f"--config.{key}={value}" for key, value in settings.items()]
        best = ("--config.best=ts_nll",) if not more else more
        return "cifar/train.py", *arguments(tmp_path / folder), *flags, *best

    done = run_here(*command("whole"))
    assert done.returncode == 0, done.stderr
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    log = killed / "metrics.jsonl"
    # After the best epoch, before the end.
    kill_when(
        start(*command("killed")),
        lambda: log.exists() and len(log.read_text().splitlines()) >= 2,
    )
    assert not (killed / "results.json").exists()
    last = run_here(*command("killed"))
    assert last.returncode == 0, last.stderr
    assert_same(killed, whole)

    lines = (whole / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    values = [row["calibration/ts_nll"] for row in rows]
    results = json.loads((whole / "results.json").read_text())
    assert results["best_epoch"] == 1 + np.argmin(values) < len(rows)
    # Predictions and networks are those of the best epoch.
    logits, labels = prediction_files.load(
        whole / "predictions" / "calibration.npz"
    )
    found = ct.callbacks.temperature_scaled_nll(logits, labels)
    best = rows[results["best_epoch"] - 1]
    assert found["ts_nll"] == pytest.approx(best["calibration/ts_nll"])
    assert found["temperature"] == pytest.approx(
        best["calibration/temperature"]
    )
    assert results["temperature_ts"] == pytest.approx(found["temperature"])
    saved = ct.models.load(str(whole / "model.keras"))
    model = ct.models.load(str(whole / "model.keras"))
    model.set_weights([0 * weights for weights in model.get_weights()])
    path = ct.training.restore_model(whole / "checkpoints", model, "best")
    assert path.endswith(f"best/best-{best['step']}")
    for left, right in zip(saved.weights, model.weights, strict=True):
        np.testing.assert_array_equal(left.numpy(), right.numpy())
    # TensorBoard has it too.
    tags = {
        value.tag
        for events in (whole / "summaries").iterdir()
        for event in tf.compat.v1.train.summary_iterator(str(events))
        for value in event.summary.value
    }
    assert {"calibration/ts_nll", "calibration/temperature"} <= tags
    # As if it had been killed while the predictions were computed.
    (killed / "results.json").unlink()
    (killed / "predictions" / "test.npz").unlink()
    again = run_here(*command("killed"))
    assert again.returncode == 0, again.stderr
    assert_same(killed, whole)
    # Another way to end is another run.
    other = run_here(*command("whole", "--config.seed=0"))
    assert other.returncode == 1
    assert 'best="ts_nll" there, null here' in other.stderr


def test_two_workers_print_what_one_process_finds(small, tmp_path):
    command = (
        "baselines/cifar/train.py",
        *arguments(tmp_path / "two"),
        f"--config.model={small}",
        "--config.best=ts_nll",
    )
    codes, written = ends(start_workers(*command, "--multi_worker"))
    assert codes == [0, 0], written
    tables = [text[text.index("focal+sb_ece on") :] for text in written]
    tables = [table[: table.index("Everything")] for table in tables]
    assert "TS-SB-ECE" in tables[0] and tables[0] == tables[1]
    # One process finds it finished; the workers' own test does so too.
    again = run_here("cifar/train.py", *command[1:])
    assert again.returncode == 0 and tables[0] in again.stdout
    assert read(tmp_path / "two")["best_epoch"] >= 1
    # Under shift, too: the second worker does not wait for the first one.
    command = (
        "shift_benchmark.py",
        f"--run_dir={tmp_path / 'two'}",
        "--corruptions=contrast",
        "--severities=2",
        "--num_examples=50",
        "--nokeep_predictions",
    )
    script = f"baselines/{command[0]}"
    workers = start_workers(script, *command[1:], "--multi_worker")
    codes, written = ends(workers)
    assert codes == [0, 0], written
    rows = pd.read_csv(tmp_path / "two" / "shift.csv")
    assert run_here(*command).returncode == 0
    again = pd.read_csv(tmp_path / "two" / "shift.csv")
    np.testing.assert_allclose(rows["value"], again["value"], atol=1e-4)
