import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from caltrain_tf.experiments import build
from caltrain_tf.experiments import train
from tests.baselines.scripts import ROOT
from tests.baselines.scripts import run_here
from tests.baselines.scripts import start
from tests.experiments.configs import TINY_FLAGS
from tests.experiments.configs import tiny
from tests.training.workers_test import ends
from tests.training.workers_test import start_workers


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
        expected = ct.evaluation.load_predictions(whole / name)
        actual = ct.evaluation.load_predictions(killed / name)
        np.testing.assert_array_equal(actual[0], expected[0])


def test_killed_runs_end_as_if_they_were_not(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    done = run_here("cifar/train.py", *arguments(whole))
    assert done.returncode == 0, done.stderr
    assert "TS-SB-ECE" in done.stdout and "focal+sb_ece" in done.stdout
    log = killed / "metrics.jsonl"

    def epochs_logged(count):
        return log.exists() and len(log.read_text().splitlines()) >= count

    # Right after the first log, before or while its checkpoint is written.
    command = ("cifar/train.py", *arguments(killed))
    kill_when(start(*command), lambda: epochs_logged(1))
    assert not (killed / "results.json").exists()
    last = run_here(*command)
    assert last.returncode == 0, last.stderr
    assert_same(killed, whole)
    # As if it had been killed while the predictions were computed.
    (killed / "results.json").unlink()
    (killed / "predictions" / "test.npz").unlink()
    again = run_here(*command)
    assert again.returncode == 0, again.stderr
    assert_same(killed, whole)
    other = run_here(*command, "--config.loss.beta=2.0")
    assert other.returncode == 1
    assert "loss.beta=1.0 there, 2.0 here" in other.stderr


@pytest.fixture(scope="module")
def interleaved(tmp_path_factory):
    """The folder of a short interleaved run, and what it returned."""
    config = tiny()
    config.epochs = 1
    config.optimizer.decay_epochs = ()
    config.loss.secondary = "s_avuc"
    config.interleaved.enabled = True
    config.interleaved.held_out_fraction = 0.34
    folder = tmp_path_factory.mktemp("interleaved")
    return folder, train(config, folder), config


def test_interleaved_training(interleaved):
    folder, results, config = interleaved
    assert results == json.loads((folder / "results.json").read_text())
    (row,) = map(
        json.loads, (folder / "metrics.jsonl").read_text().splitlines()
    )
    # 63 and 33 examples in batches of 32.
    assert row["step"] == 2
    assert row["held_out/primary_loss"] == 0
    assert row["held_out/secondary_loss"] > 0
    assert row["train/secondary_loss"] == 0
    logits, labels = ct.evaluation.load_predictions(
        folder / "predictions" / "test.npz"
    )
    assert logits.shape == (600, 10) and labels.shape == (600,)
    assert (folder / "reliability.png").read_bytes()[1:4] == b"PNG"
    assert list((folder / "summaries").iterdir())
    # Once it is finished, nothing is read but its results.
    assert train(config, folder, data_dir="/none", strategy=False) == results


def test_networks_of_a_run_load_in_a_fresh_process(interleaved, tmp_path):
    folder, results, config = interleaved
    data = build.build_data(config)
    images, _, _ = next(iter(data.eval_batches("test", 32)))
    np.save(tmp_path / "images.npy", images)
    program = f"""if True:
        import caltrain_tf, keras, numpy as np
        images = np.load({str(tmp_path / "images.npy")!r})
        for name in ("model", "calibrated"):
            model = keras.saving.load_model(f"{folder}/{{name}}.keras")
            logits = model.predict(images, verbose=0)
            np.save(f"{tmp_path}/{{name}}.npy", logits)
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    expected, _ = ct.evaluation.load_predictions(
        folder / "predictions" / "test.npz"
    )
    logits = np.load(tmp_path / "model.npy")
    np.testing.assert_allclose(logits, expected[:32], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        np.load(tmp_path / "calibrated.npy"),
        logits / results["temperature_ts_sb_ece"],
        rtol=1e-5,
        atol=1e-5,
    )


def test_a_network_of_a_file_in_a_bucket(interleaved, tmp_path):
    folder, _, _ = interleaved
    network = keras.Sequential(
        [
            keras.Input([32, 32, 3]),
            keras.layers.AveragePooling2D(4),
            keras.layers.Flatten(),
            keras.layers.Dense(10),
        ]
    )
    config = tiny()
    config.epochs = 1
    config.optimizer.decay_epochs = ()
    config.optimizer.learning_rate = 1e-6
    # Least squares make it know digits before it is trained.
    data = build.build_data(config)
    images, labels, _ = next(iter(data.eval_batches("train", 96)))
    normalize = keras.layers.Rescaling(**data.rescaling)
    rows = keras.Model(network.inputs, network.layers[-1].input)
    kernel = np.linalg.pinv(rows(normalize(images))) @ np.eye(10)[labels]
    network.layers[-1].set_weights([10 * kernel, np.zeros(10)])
    network.save(tmp_path / "small.keras")
    config.model = config.init_from = str(tmp_path / "small.keras")
    results = train(config, "ram://bucket/train")
    assert results["accuracy"] > 0.5
    there = tf.io.gfile.listdir("ram://bucket/train")
    local = {path.name for path in folder.iterdir()} - {".lock"}
    assert set(there) == local
    assert not pathlib.Path("ram:").exists()
    logits, _ = ct.evaluation.load_predictions(
        "ram://bucket/train/predictions/test.npz"
    )
    assert logits.shape == (600, 10)
    trained = ct.models.load("ram://bucket/train/model.keras")
    assert trained.count_params() == network.count_params()
    assert train(config, "ram://bucket/train") == results


def test_two_workers_that_were_killed_go_on(tmp_path):
    command = (
        "baselines/cifar/train.py",
        *arguments(tmp_path / "two"),
        "--multi_worker",
        "--config.checkpoint_every_steps=1",
    )
    processes = start_workers(*command)
    log = tmp_path / "two" / "metrics.jsonl"
    while not (log.exists() and log.read_text()):
        assert all(process.poll() is None for process in processes)
        time.sleep(0.01)
    for process in processes:
        process.kill()
    ends(processes)
    results = tmp_path / "two" / "results.json"
    assert not results.exists()
    codes, written = ends(start_workers(*command))
    assert codes == [0, 0], written
    tables = [text[text.index("focal+sb_ece on") :] for text in written]
    tables = [table[: table.index("Everything")] for table in tables]
    assert "TS-SB-ECE" in tables[0] and tables[0] == tables[1]
    # One process finds it finished; the workers' own test does so too.
    *command, _, every = command
    again = run_here("cifar/train.py", *command[1:], every)
    assert again.returncode == 0 and tables[0] in again.stdout
    assert len(log.read_text().splitlines()) == 2
