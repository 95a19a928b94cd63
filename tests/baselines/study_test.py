import json
import signal
import threading
import time

import pandas as pd
import pytest

from caltrain_tf.experiments import prediction_files
from tests.baselines.scripts import ROOT, run_here, start
from tests.experiments.configs import TINY_FLAGS


def test_two_studies_in_one_folder_one_of_which_is_stopped(tmp_path):
    (tmp_path / "tuned.json").write_text('{"focal+sb_ece": {"loss.beta": 2}}')
    study = tmp_path / "study"
    settings = {**TINY_FLAGS, "epochs": 1, "optimizer.decay_epochs": ()}
    command = [
        f"--config={ROOT / 'configs' / 'quickstart.py'}",
        f"--output_dir={study}",
        *(f"--config.{key}={value}" for key, value in settings.items()),
        "--objectives=focal+sb_ece",
        "--seeds=1",
        f"--tuned={tmp_path / 'tuned.json'}",
        "--shift",
        "--shift_flags=--corruptions=contrast --severities=4 --num_examples=50",
    ]
    run = study / "focal+sb_ece" / "seed1"

    def wait_for_starts(number):
        while stopped.poll() is None and starts() < number:
            time.sleep(0.05)

    def starts():
        log = run / "log.txt"
        return log.read_text().count("--- 20") if log.exists() else 0

    def stop():
        wait_for_starts(2)
        stopped.send_signal(signal.SIGTERM)

    stopped = start("study.py", *command)
    wait_for_starts(1)
    thread = threading.Thread(target=stop)
    thread.start()
    # This one waits, and goes on with what the first one has left.
    done = run_here("study.py", *command)
    thread.join()
    output, errors = stopped.communicate()
    assert stopped.returncode == 143, errors
    assert "the same command goes on" in errors and "Traceback" not in errors
    assert "1 runs in" in output and "Not tuned: none" in output
    assert "Stopping the runs, with checkpoints" in errors

    assert done.returncode == 0, done.stderr + done.stdout
    assert "focal+sb_ece seed 1: accuracy" in done.stderr
    config = json.loads((run / "config.json").read_text())
    assert (config["loss"]["beta"], config["seed"]) == (2.0, 1)
    results = json.loads((run / "results.json").read_text())
    label = "Focal + SB-ECE"
    (line,) = [x for x in done.stdout.splitlines() if x.startswith(label)]
    numbers = [float(word) for word in line.removeprefix(label).split()]
    keys = ("accuracy", "ece", "ece_ts", "ece_ts_sb_ece")
    expected = [1, *(100 * results[key] for key in keys)]
    assert numbers == pytest.approx(expected, abs=0.006)
    rows = pd.read_csv(run / "shift.csv")
    assert set(rows["corruption"]) == {"none", "contrast"}
    _, labels = prediction_files.load(run / "predictions" / "contrast_4.npz")
    assert len(labels) == 50
    assert starts() == 2

    # A third time there is nothing to do, and nothing is started.
    again = run_here("study.py", *command)
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout == done.stdout
    assert starts() == 2
