"""SIGTERM in the middle of everything that takes long.

Nothing here asserts a time: without an answer to the signal, a run would take
hours, and the test would end in a timeout.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

import caltrain_tf as ct
from tests.training import tiny

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def start():
    """Starts a run; ends it if a test fails."""
    processes = []

    def start(path, where):
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.training.preempted_run",
                str(path),
                where,
            ],
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "TF_CPP_MIN_LOG_LEVEL": "3",
                "CUDA_VISIBLE_DEVICES": "",
            },
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def _read(process, beginning, times=1):
    """Reads lines until some have begun like this; returns the last one."""
    while times:
        line = process.stdout.readline()
        assert line, "the run ended"
        times -= line.startswith(beginning)
    return line


def _end(process, signals=1):
    for _ in range(signals):
        process.send_signal(signal.SIGTERM)
    process.communicate(timeout=300)
    return process.returncode


def _newest(path):
    names = os.listdir(path / "checkpoints")
    return max(
        int(name.removeprefix("ckpt-").removesuffix(".index"))
        for name in names
        if name.endswith(".index")
    )


def test_in_a_long_execution(start, tmp_path):
    process = start(tmp_path, "steps")
    _read(process, "step", 60)
    assert _end(process) == 143
    # All but the batches that were read ahead, two by each prefetch.
    assert _newest(tmp_path) > 50


def test_in_an_evaluation(start, tmp_path):
    process = start(tmp_path, "evaluation")
    _read(process, "evaluation", 30)
    assert _end(process) == 143
    assert _newest(tmp_path) == 4
    assert not (tmp_path / "metrics.jsonl").read_text()
    # Later, only the evaluation is left to do.
    again = tiny.trainer()
    again._run_steps = None
    evaluations = {"test": tiny.dataset()}
    options = {"evaluations": evaluations, "run": tmp_path, "verbose": False}
    (row,) = again.fit(tiny.dataset(), 1, **options)
    whole = tiny.trainer()
    options["run"] = None
    assert whole.fit(tiny.dataset(), 1, **options) == [row]
    log = (tmp_path / "metrics.jsonl").read_text()
    assert json.loads(log) == row


def test_in_a_save(start, tmp_path):
    process = start(tmp_path, "save")
    step = int(_read(process, "save").split()[1])
    assert _end(process) == 143
    # What is on its way is awaited.
    assert _newest(tmp_path) >= step
    folder = tmp_path / "checkpoints"
    assert ct.training.restore_model(folder, tiny.network())


def test_a_second_signal_ends_at_once(start, tmp_path):
    process = start(tmp_path, "hang")
    _read(process, "step")
    process.send_signal(signal.SIGTERM)
    # It waits for the step, which never ends.
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=3)
    assert _end(process) == 143
