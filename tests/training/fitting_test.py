"""Runs end the same, whether or not they were killed."""

import os
import pathlib
import subprocess
import sys

import numpy as np

from tests.training import tiny
from tests.training import tiny_run

ROOT = pathlib.Path(__file__).parents[2]


def _run(path, *options):
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "",
    }
    process = subprocess.run(
        [sys.executable, "-m", "tests.training.tiny_run", path, *options],
        env=environment,
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    return process.returncode, process.stderr


def test_killed_runs_end_in_the_same_weights(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    tiny_run.run(str(whole))
    # The fourth save is the one at the end of the first epoch.
    ends = [
        _run(killed, option) for option in ("--kill_in_save=4", "--term_at=9")
    ]
    assert [code for code, _ in ends] == [-9, 143]
    assert "ckpt-6 is damaged and passed over" in ends[1][1]
    tiny_run.run(str(killed))

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
    def fit(epochs):
        trained = tiny_run.make_trainer()
        rows = trained.fit(tiny.shuffled, epochs, run=tmp_path, verbose=False)
        return trained, rows

    fit(1)
    more, rows = fit(3)
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    assert [row["step"] for row in rows] == [4, 8, 12]
    # All done: nothing is trained any more.
    again, same_rows = fit(3)
    assert same_rows == rows
    tiny.assert_same_weights(more, again)
