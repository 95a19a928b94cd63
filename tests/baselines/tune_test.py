import csv
import json
import time

import psutil

from caltrain_tf.experiments import measures, prediction_files
from tests.baselines.scripts import ROOT, run_here, start
from tests.experiments.configs import TINY_FLAGS


def test_a_trial_that_was_killed_is_tried_again(tmp_path):
    settings = {**TINY_FLAGS, "epochs": 1, "optimizer.decay_epochs": ()}
    arguments = [
        f"--config={ROOT / 'configs' / 'quickstart.py'}",
        "--primary=focal",
        "--secondary=sb_ece",
        f"--output_dir={tmp_path}",
        *(f"--config.{key}={value}" for key, value in settings.items()),
        "--config.search.temperature=()",
        "--config.search.beta=(0.3,)",
        "--config.search.l2=()",
    ]
    first = start("tune.py", *arguments)
    lock = tmp_path / "trials" / "beta=0.3" / ".lock"
    while not lock.exists():
        assert first.poll() is None
        time.sleep(0.01)
    (trial,) = psutil.Process(first.pid).children()
    trial.kill()
    _, errors = first.communicate()
    assert first.returncode == 1 and "Traceback" not in errors
    assert "beta=0.3: FAILED, killed by SIGKILL" in errors
    assert "All trials failed; the same command tries again." in errors

    done = run_here("tune.py", *arguments)
    assert done.returncode == 0, done.stderr
    assert "beta=0.3: accuracy" in done.stderr
    assert "Best: --config.loss.beta=0.3" in done.stdout
    best = json.loads((tmp_path / "best.json").read_text())
    run = tmp_path / "trials" / best["trial"]
    assert json.loads((run / "config.json").read_text()) == best["config"]
    # The test split has no say.
    measured = measures.measure(
        *prediction_files.load(run / "predictions" / "calibration.npz")
    )
    for key in ("accuracy", "ece", "nll"):
        assert best["calibration"][key] == measured[key]
    with open(tmp_path / "trials.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["trial"] == best["trial"] == "beta=0.3"
    assert float(row["ece"]) == best["calibration"]["ece"]
    # A run with what was found.
    folder = tmp_path / "tuned"
    tuned = [argument for argument in arguments if "search" not in argument]
    tuned = [a for a in tuned if not a.startswith("--output")]
    done = run_here(
        "cifar/train.py",
        *tuned,
        f"--tuned={tmp_path}",
        f"--output_dir={folder}",
    )
    assert done.returncode == 0, done.stderr
    config = json.loads((folder / "config.json").read_text())
    assert config["loss"] == best["config"]["loss"]
