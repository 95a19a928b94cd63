import json
import signal
import time

import numpy as np

import caltrain_tf as ct
from caltrain_tf.experiments import train
from tests.baselines.scripts import ROOT
from tests.baselines.scripts import run_here
from tests.baselines.scripts import start
from tests.experiments.configs import TINY_FLAGS
from tests.experiments.configs import tiny


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


def test_interleaved_training(tmp_path):
    config = tiny()
    config.epochs = 1
    config.optimizer.decay_epochs = ()
    config.loss.secondary = "s_avuc"
    config.interleaved.enabled = True
    config.interleaved.held_out_fraction = 0.34
    results = train(config, tmp_path)
    assert set(results) == set(
        json.loads((tmp_path / "results.json").read_text())
    )
    (row,) = map(
        json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines()
    )
    # 63 and 33 examples in batches of 32.
    assert row["step"] == 2
    assert row["held_out/primary_loss"] == 0
    assert row["held_out/secondary_loss"] > 0
    assert row["train/secondary_loss"] == 0
    logits, labels = ct.evaluation.load_predictions(
        tmp_path / "predictions" / "test.npz"
    )
    assert logits.shape == (360, 10) and labels.shape == (360,)
    assert (tmp_path / "reliability.png").read_bytes()[1:4] == b"PNG"
    assert list((tmp_path / "summaries").iterdir())
