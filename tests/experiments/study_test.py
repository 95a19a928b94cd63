import contextlib
import io
import os
import pathlib
import re
import signal
import threading

import pytest

from caltrain_tf.experiments.pool import LocalPool
from caltrain_tf.experiments.study import (
    do_runs,
    summary_table,
    unfinished,
)
from tests.experiments.fake_runs import ROOT, make_run, starts, wait_for


def do(runs, parallel=1):
    """The failures of runs, and what is said on the terminal."""
    stream = io.StringIO()
    with contextlib.redirect_stderr(stream), LocalPool(ROOT, parallel) as pool:
        failures = do_runs(runs, pool)
    return failures, stream.getvalue()


def test_finished_runs_are_skipped(tmp_path):
    runs = [make_run(tmp_path, seed) for seed in (0, 1)]
    failures, text = do(runs[:1])
    assert not failures
    said = r"nll seed {0}: accuracy {1}.00%, ECE {1}.00%, \d+ s \({1}/{1}\)\n"
    assert re.fullmatch(said.format(0, 1), text)
    assert unfinished(runs) == runs[1:]
    _, text = do(runs)
    assert re.fullmatch(said.format(1, 2), text)
    assert [len(starts(run)) for run in runs] == [1, 1]
    assert do(runs)[1] == ""


def test_another_configuration_is_an_error_before_anything_starts(tmp_path):
    do([make_run(tmp_path, 0, beta=1.0)])
    again = [
        make_run(tmp_path, 0, objective="mse"),
        make_run(tmp_path, 0, beta=2.0),
    ]
    with pytest.raises(ValueError, match="beta=1.0 there, 2.0 here"):
        do(again)
    assert not os.path.exists(again[0].folder)


def test_failures_do_not_stop_the_others(tmp_path):
    acts = ("fail", "die", "nothing", "")
    runs = [make_run(tmp_path, seed, act) for seed, act in enumerate(acts)]
    # A file is where its folder should be.
    (tmp_path / "mse").touch()
    runs.append(make_run(tmp_path, 0, objective="mse"))
    with pytest.raises(NotADirectoryError):
        os.makedirs(runs[-1].folder)
    failures, text = do(runs)
    assert [failures[run].failure for run in unfinished(runs)] == [
        "exit code 1",
        "killed by SIGKILL",
        "ended without its results",
        "NotADirectoryError",
    ]
    assert (
        "seed 0: FAILED, exit code 1: ValueError: no such thing (1/5)" in text
    )
    assert unfinished(runs) == [*runs[:3], runs[4]]
    # Everything that failed is tried again.
    do(runs[:4])
    assert [len(starts(run)) for run in runs[:4]] == [2, 2, 2, 1]


def test_a_signal_stops_the_runs_and_the_same_study_goes_on(tmp_path, capsys):
    # `baselines/study_test.py` has SIGTERM.
    runs = [make_run(tmp_path, seed, "wait") for seed in (0, 1, 2)]

    def interrupt():
        for run in runs[:2]:
            wait_for(pathlib.Path(run.folder, "metrics.jsonl").exists)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt), LocalPool(ROOT, 2) as pool:
        do_runs(runs, pool)
    thread.join()
    assert capsys.readouterr().err == (
        "Stopping the runs, with checkpoints. Again to kill them.\n"
    )
    assert [len(starts(run)) for run in runs] == [1, 1, 0]
    (tmp_path / "nll" / "go").touch()
    failures, _ = do(runs, parallel=2)
    assert not failures and not unfinished(runs)
    assert [len(starts(run)) for run in runs] == [2, 2, 1]


def test_a_second_signal_kills(tmp_path):
    run = make_run(tmp_path, 0, "stubborn")

    def interrupt():
        wait_for(pathlib.Path(run.folder, "metrics.jsonl").exists)
        os.kill(os.getpid(), signal.SIGINT)
        # The program has been asked to stop, and does not.
        wait_for(pathlib.Path(run.folder, "asked").exists)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        do([run])
    thread.join()
    with pytest.raises(ProcessLookupError):
        os.kill(int(starts(run)[0][0]), 0)


def test_the_means_of_runs(tmp_path):
    runs = [make_run(tmp_path, 0), make_run(tmp_path, 1)]
    runs.append(make_run(tmp_path, 0, objective="focal"))
    assert summary_table(runs) == ""
    do(runs)
    head, nll, focal, *_ = summary_table(runs).replace("*", "").splitlines()
    assert "ECE + TS-SB-ECE (%)" in head
    assert nll.split() == ["NLL", "2", *["1.50", "±", "0.50"] * 4]
    assert focal.split() == ["Focal", "1", *["1.00"] * 4]
