import json
import signal
import time

import pandas as pd
import pytest

from caltrain_tf.experiments import prediction_files
from tests.baselines.scripts import ROOT, run_here, start
from tests.experiments.configs import TINY_FLAGS


def arguments(output_dir, *flags):
    settings = {**TINY_FLAGS, "epochs": 1, "optimizer.decay_epochs": ()}
    return [
        f"--config={ROOT / 'configs' / 'quickstart.py'}",
        f"--output_dir={output_dir}",
        *(f"--config.{key}={value}" for key, value in settings.items()),
        *flags,
    ]


def test_two_studies_in_one_folder_one_of_which_is_stopped(tmp_path):
    (tmp_path / "tuned.json").write_text('{"focal+sb_ece": {"loss.beta": 2}}')
    study = tmp_path / "study"
    command = arguments(
        study,
        "--objectives=nll,focal+sb_ece",
        "--seeds=1",
        "--parallel=2",
        f"--tuned={tmp_path / 'tuned.json'}",
        *("--shift", "--shift_corruptions=contrast", "--shift_severities=4"),
        "--shift_examples=50",
    )
    stopped, other = (start("study.py", *command) for _ in range(2))
    logs = study.glob("*/*/log.txt")
    while sum(log.read_text().count("--- 20") for log in logs) < 4:
        assert stopped.poll() is None and other.poll() is None
        time.sleep(0.05)
        logs = study.glob("*/*/log.txt")
    stopped.send_signal(signal.SIGTERM)
    output, errors = stopped.communicate()
    assert stopped.returncode == 143, errors
    assert "the same command goes on" in errors and "Traceback" not in errors
    assert "2 runs in" in output and "Not tuned: nll" in output
    assert "Stopping the runs, with checkpoints" in errors

    # The other one goes on with what the first one has left.
    output, errors = other.communicate()
    assert other.returncode == 0, errors + output
    assert "nll seed 1: accuracy" in errors
    for objective, label, beta in (
        ("nll", "NLL", 3.0),
        ("focal+sb_ece", "Focal + SB-ECE", 2.0),
    ):
        run = study / objective / "seed1"
        config = json.loads((run / "config.json").read_text())
        assert (config["loss"]["beta"], config["seed"]) == (beta, 1)
        results = json.loads((run / "results.json").read_text())
        (line,) = [x for x in output.splitlines() if x.startswith(label)]
        line = line.removeprefix(label).replace("†", "")
        numbers = [float(word) for word in line.split()]
        keys = ("accuracy", "ece", "ece_ts", "ece_ts_sb_ece")
        expected = [1, *(100 * results[key] for key in keys)]
        assert numbers == pytest.approx(expected, abs=0.006)
        rows = pd.read_csv(run / "shift.csv")
        assert set(rows["corruption"]) == {"none", "contrast"}
        _, labels = prediction_files.load(
            run / "predictions" / "contrast_4.npz"
        )
        assert len(labels) == 50
        assert (run / "log.txt").read_text().count("--- 20") == 2

    # A third time there is nothing to do, and nothing is started.
    table = output[output.index("Objective") :]
    again = run_here("study.py", *command)
    assert (again.returncode, again.stderr) == (0, "")
    assert table in again.stdout
    assert (run / "log.txt").read_text().count("--- 20") == 2
