import json
import signal
import time

import pytest

import caltrain_tf as ct
from tests.baselines.scripts import ROOT
from tests.baselines.scripts import run_here
from tests.baselines.scripts import start
from tests.experiments.configs import TINY_FLAGS


def arguments(output_dir, *flags):
    settings = {**TINY_FLAGS, "epochs": 1, "optimizer.decay_epochs": ()}
    return [
        f"--config={ROOT / 'configs' / 'quickstart.py'}",
        f"--output_dir={output_dir}",
        *(f"--config.{key}={value}" for key, value in settings.items()),
        *flags,
    ]


def test_a_study_that_was_stopped_goes_on_to_its_end(tmp_path):
    (tmp_path / "tuned.json").write_text('{"focal+sb_ece": {"loss.beta": 3}}')
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
    stopped = start("study.py", *command)
    while stopped.poll() is None and len(list(study.glob("*/*/log.txt"))) < 2:
        time.sleep(0.01)
    stopped.send_signal(signal.SIGTERM)
    output, errors = stopped.communicate()
    assert stopped.returncode == 143, errors
    assert "the same command goes on" in output
    assert "2 runs in" in output and "Not tuned: nll" in output

    done = run_here("study.py", *command)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "nll seed 1: accuracy" in done.stderr
    for objective, beta in (("nll", 1.0), ("focal+sb_ece", 3.0)):
        run = study / objective / "seed1"
        config = json.loads((run / "config.json").read_text())
        assert (config["loss"]["beta"], config["seed"]) == (beta, 1)
        results = json.loads((run / "results.json").read_text())
        (line,) = [
            line
            for line in done.stdout.splitlines()
            if line.split(" ")[0] == objective
        ]
        numbers = [float(word) for word in line.split()[1:]]
        keys = ("accuracy", "ece", "ece_ts", "ece_ts_sb_ece")
        expected = [1, *(100 * results[key] for key in keys)]
        assert numbers == pytest.approx(expected, abs=0.006)
        rows = ct.evaluation.read_shift_csv(run / "shift.csv")
        assert {row["corruption"] for row in rows} == {"none", "contrast"}
        _, labels = ct.evaluation.load_predictions(
            run / "predictions" / "contrast_4.npz"
        )
        assert len(labels) == 50
        assert (run / "log.txt").read_text().count("--- 20") == 2
