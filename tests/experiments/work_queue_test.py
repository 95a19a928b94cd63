import collections
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

import optuna
import pytest

from caltrain_tf.experiments import liveness
from tests.experiments.cheap_worker import make_jobs
from tests.experiments.cheap_worker import make_work
from tests.experiments.cheap_worker import open_queue

ROOT = pathlib.Path(__file__).parents[2]
FAIL = optuna.trial.TrialState.FAIL


@pytest.fixture(params=["sqlite:///{}/study.db", "{}/study.journal"])
def url(request, tmp_path):
    return request.param.format(tmp_path)


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log"
    path.touch()
    return path


def start(url, log, count, seconds):
    command = [
        sys.executable,
        "-m",
        "tests.experiments.cheap_worker",
        url,
        str(log),
        str(count),
        str(seconds),
    ]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def finish(process):
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    return output


def lines(log, word):
    split = map(str.split, log.read_text().splitlines())
    return [(name, pid) for first, name, pid in split if first == word]


def wait_for_a_start(process, log):
    while process.poll() is None and not lines(log, "start"):
        time.sleep(0.01)


def test_workers_share_the_jobs(url, log):
    jobs = make_jobs(10)
    other = start(url, log, len(jobs), 0.3)
    wait_for_a_start(other, log)
    outcomes = open_queue(url).run(jobs, make_work(log, 0.3))
    # What the other one prints are the outcomes of all jobs, too.
    assert finish(other).splitlines()[-1] == str(sorted(outcomes))
    names = collections.Counter(name for name, _ in lines(log, "start"))
    assert names == dict.fromkeys(jobs, 1)
    pids = {pid for _, pid in lines(log, "end")}
    assert pids == {str(os.getpid()), str(other.pid)}


def test_the_job_of_a_killed_worker_is_taken_again(tmp_path, log):
    url = f"sqlite:///{tmp_path}/study.db"
    killed = start(url, log, 3, 600)
    wait_for_a_start(killed, log)
    queue = open_queue(url, say=lambda line: said.append(line))
    said = []
    assert list(queue.running()) == ["x=0"]
    # The other jobs are taken before anyone waits for this one.
    assert queue.work_once(make_jobs(3), make_work(log, 0))
    assert lines(log, "end") == [("x=1", str(os.getpid()))]
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    outcomes = queue.run(make_jobs(3), make_work(log, 0))
    assert [outcome.result["ece"] for outcome in outcomes.values()] == [
        0.0,
        0.01,
        0.02,
    ]
    assert [name for name, _ in lines(log, "start")] == [
        "x=0",
        "x=1",
        "x=0",
        "x=2",
    ]
    (line,) = said
    assert "is gone; taking x=0 again" in line and str(killed.pid) in line


def test_a_silent_worker_of_another_machine_is_gone_after_a_while(url):
    jobs = make_jobs(1)
    queue = open_queue(url, gone_seconds=0.5, say=lambda line: None)
    queue.add("x=0", jobs["x=0"])
    trial = queue._study.ask()
    trial.set_user_attr(liveness.WORKER, "elsewhere:1/7/1")
    began = time.monotonic()
    outcome = queue.run(jobs, lambda *_: {"ece": 0, "accuracy": 1})["x=0"]
    assert outcome.result == {"ece": 0, "accuracy": 1}
    assert time.monotonic() - began > 0.5


def test_a_worker_that_beats_is_waited_for(url):
    jobs = make_jobs(1)
    said = []
    queue = open_queue(url, gone_seconds=0.5, say=said.append)
    queue.add("x=0", jobs["x=0"])
    trial = queue._study.ask()
    began = time.monotonic()

    def later():
        with liveness.Heartbeat(trial, 0.1):
            # A Heartbeat says who we are; this worker is of another machine.
            trial.set_user_attr(liveness.WORKER, "elsewhere:1/7/1")
            while time.monotonic() - began < 1.5:
                time.sleep(0.05)
        trial.set_user_attr("result", {"ece": 0.5, "accuracy": 0.5})
        queue._study.tell(trial, [0.5, 0.5])

    thread = threading.Thread(target=later)
    thread.start()
    outcome = queue.run(jobs, lambda *_: pytest.fail("taken twice"))["x=0"]
    thread.join()
    assert outcome.result["ece"] == 0.5
    assert "waiting for other workers: x=0 (elsewhere:1/7/1)" in said


def test_failures_are_outcomes_and_stop_nobody(url, capsys):
    said = []
    queue = open_queue(url, say=said.append)

    def work(name, params):
        if name == "x=1":
            raise RuntimeError("no memory")
        return {"ece": float("nan") if name == "x=2" else 0, "accuracy": 1}

    outcomes = queue.run(make_jobs(4), work)
    assert outcomes["x=1"].reason == "RuntimeError: no memory"
    assert "not finite: ece=nan, accuracy=1" in outcomes["x=2"].reason
    assert outcomes["x=0"].reason is None and outcomes["x=3"].result
    assert said[0] == "failed: x=1: RuntimeError: no memory"
    assert "in work" in capsys.readouterr().err
    # They stay failed, unless asked for.
    never = lambda *_: pytest.fail("done again")  # noqa: E731
    assert open_queue(url).run(make_jobs(4), never) == outcomes
    again = open_queue(url, retry_failed=True).run(
        make_jobs(4), lambda *_: {"ece": 0, "accuracy": 1}
    )
    assert {outcome.reason for outcome in again.values()} == {None}
    assert open_queue(url).run(make_jobs(4), never) == again


def test_an_interrupted_job_is_free_at_once(url):
    def interrupted(name, params):
        raise KeyboardInterrupt

    queue = open_queue(url)
    with pytest.raises(KeyboardInterrupt):
        queue.run(make_jobs(1), interrupted)
    assert queue.running() == {} and queue.outcomes() == {}
    open_queue(url).run(make_jobs(1), lambda *_: {"ece": 0, "accuracy": 1})


def test_of_jobs_that_two_workers_added_at_once_one_is_done(url):
    queue = open_queue(url)
    for _ in range(3):
        queue.add("x=0", {"x": 0.0})
    done = []

    def work(name, params):
        done.append(name)
        return {"ece": 0, "accuracy": 1}

    queue.run(make_jobs(1), work)
    assert done == ["x=0"]


def test_who_has_lost_a_trial_does_not_overwrite_it(url):
    said = []
    queue = open_queue(url, say=said.append)

    def slow(name, params):
        # Meanwhile another worker takes us for gone, and does the job.
        (trial,) = queue._trials()
        queue._study.tell(trial.number, state=FAIL)
        open_queue(url).run(
            make_jobs(1), lambda *_: {"ece": 0.25, "accuracy": 1}
        )
        return {"ece": 0.5, "accuracy": 1}

    outcomes = queue.run(make_jobs(1), slow)
    assert outcomes["x=0"].result["ece"] == 0.25
    assert "not this worker's any more" in said[0]


def test_processes_have_names_of_their_own():
    name = liveness.worker_name()
    assert socket.gethostname() in name and not liveness.is_dead(name)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1)
    theirs = liveness.worker_name(child.pid)
    assert not liveness.is_dead(theirs)
    child.kill()
    # Not even a zombie works.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert liveness.is_dead(theirs)
    child.communicate()
    assert liveness.is_dead(theirs)
    machine = name.rsplit("/", 2)[0]
    assert liveness.is_dead(f"{machine}/{os.getpid()}/1")
    assert not liveness.is_dead("elsewhere:1/7/1")
