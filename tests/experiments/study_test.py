import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from caltrain_tf.experiments import processes
from caltrain_tf.experiments.matrix import Setting
from caltrain_tf.experiments.study import Study
from caltrain_tf.experiments.study import unfinished

COMMAND = (sys.executable, str(pathlib.Path(__file__).with_name("fake_run.py")))


def setting(folder, objective, seed, **config):
    return Setting(
        objective,
        seed,
        {"seed": seed, "epochs": 4, **config},
        str(folder / objective / f"seed{seed}"),
    )


def starts(run):
    path = pathlib.Path(run.folder) / "starts"
    return path.read_text().splitlines() if path.exists() else []


def do(settings, **options):
    stream = io.StringIO()
    outcome = Study(settings, command=COMMAND, stream=stream, **options).run()
    return outcome, stream.getvalue()


def wait_for(path):
    while not pathlib.Path(path).exists():
        time.sleep(0.01)


def test_finished_runs_are_skipped(tmp_path):
    runs = [setting(tmp_path, "nll", seed) for seed in (0, 1)]
    outcome, text = do(runs[:1])
    assert not outcome.failures and outcome.stopped_by is None
    assert "nll seed 0: accuracy 1.00%, ECE 1.00%" in text
    assert unfinished(runs) == runs[1:]
    outcome, text = do(runs)
    assert "nll seed 1: accuracy 2.00%" in text and "seed 0:" not in text
    assert [len(starts(run)) for run in runs] == [1, 1]
    log = (tmp_path / "nll" / "seed0" / "log.txt").read_text()
    assert log.startswith("--- 20")


def test_another_configuration_is_an_error_before_anything_starts(tmp_path):
    first = setting(tmp_path, "nll", 0, beta=1.0)
    do([first])
    again = [
        setting(tmp_path, "focal", 0),
        setting(tmp_path, "nll", 0, beta=2.0),
    ]
    with pytest.raises(ValueError, match="beta=1.0 there, 2.0 here"):
        Study(again, command=COMMAND)
    assert not os.path.exists(again[0].folder)


def test_failures_do_not_stop_the_others(tmp_path):
    acts = ("fail", "die", "nothing", "")
    runs = [
        setting(tmp_path, "nll", seed, act=act) for seed, act in enumerate(acts)
    ]
    outcome, text = do(runs)
    assert [failure.reason for failure in outcome.failures] == [
        "exit code 1",
        "killed by SIGKILL",
        "ended without its results",
    ]
    first = outcome.failures[0]
    assert first.name == "nll seed 0"
    assert first.last_line == "ValueError: no such thing"
    assert "about to fail" in pathlib.Path(first.log_path).read_text()
    assert outcome.failures[1].last_line == ""
    assert "seed 0: FAILED, exit code 1: ValueError: no such thing" in text
    assert unfinished(runs) == runs[:3]


def test_a_program_that_is_not_there_is_a_failure_of_ours(tmp_path):
    with pytest.raises(FileNotFoundError):
        Study([setting(tmp_path, "nll", 0)], command=("no-such",)).run()


def test_at_least_one_at_a_time(tmp_path):
    with pytest.raises(ValueError, match="parallel=0"):
        Study([setting(tmp_path, "nll", 0)], parallel=0)


def test_several_at_a_time_share_the_processor(tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)))
    runs = [setting(tmp_path, "nll", seed, act="meet") for seed in (0, 1)]
    outcome, _ = do(runs, parallel=2)
    assert not outcome.failures and not unfinished(runs)
    assert [starts(run)[0].split()[1] for run in runs] == ["3", "3"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_runs_and_the_same_study_goes_on(tmp_path, number):
    runs = [setting(tmp_path, "nll", seed, act="wait") for seed in (0, 1, 2)]

    def interrupt():
        wait_for(tmp_path / "nll" / "seed0" / "metrics.jsonl")
        wait_for(tmp_path / "nll" / "seed1" / "metrics.jsonl")
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=interrupt)
    thread.start()
    outcome, text = do(runs, parallel=2)
    thread.join()
    assert outcome.stopped_by == number and not outcome.failures
    assert "Stopping 2 runs" in text
    assert [len(starts(run)) for run in runs] == [1, 1, 0]
    for run in runs[:2]:
        with pytest.raises(ProcessLookupError):
            os.kill(int(starts(run)[0].split()[0]), 0)
    (tmp_path / "nll" / "go").touch()
    outcome, _ = do(runs, parallel=2)
    assert not outcome.failures and not unfinished(runs)
    assert [len(starts(run)) for run in runs] == [2, 2, 1]


def test_runs_notice_that_their_study_was_killed(tmp_path):
    run = setting(tmp_path, "nll", 0, act="wait")
    program = textwrap.dedent(
        f"""
        import json, os, runpy, sys, time
        # The file alone, without the seconds that the package takes to import.
        Child = runpy.run_path({processes.__file__!r})["Child"]
        job = json.loads({json.dumps(json.dumps(run.config))})
        job = dict(folder={run.folder!r}, config=job)
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        Child(job["folder"], job, environment, {COMMAND!r})
        time.sleep(600)
        """
    )
    process = subprocess.Popen([sys.executable, "-c", program])
    wait_for(os.path.join(run.folder, "metrics.jsonl"))
    process.kill()
    process.wait()
    wait_for(os.path.join(run.folder, "orphan"))
