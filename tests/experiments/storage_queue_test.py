import io
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

from caltrain_tf.experiments.storage_queue import StorageQueue
from caltrain_tf.experiments.study import unfinished
from tests.experiments.fake_study import make_settings
from tests.experiments.fake_study import make_study

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def storage(tmp_path):
    return f"sqlite:///{tmp_path}/study.db"


def start_worker(folder, storage, acts):
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "tests.experiments.fake_study"),
            *(str(folder), storage, *acts),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def starts(folder, seed):
    path = folder / "nll" / f"seed{seed}" / "starts"
    return path.read_text().splitlines() if path.exists() else []


def wait_for(path, process):
    while not path.exists():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.01)


def test_workers_share_the_runs(tmp_path, storage):
    # Runs end in pairs: the second worker has to take the other of each.
    acts = ("meet", "meet", "", "fail", "")
    other = start_worker(tmp_path, storage, acts)
    stream = io.StringIO()
    outcome = make_study(tmp_path, storage, acts, stream=stream).run()
    output, errors = other.communicate()
    assert other.returncode == 0, errors
    assert output == "failures ['nll seed 3']\n"
    (failure,) = outcome.failures
    assert failure.name == "nll seed 3"
    words = f"{failure.reason} {failure.last_line}"
    assert "ValueError: no such thing" in words
    assert os.path.exists(failure.log_path)
    assert [len(starts(tmp_path, seed)) for seed in range(5)] == [1] * 5
    left = unfinished(make_settings(tmp_path, acts))
    assert [run.seed for run in left] == [3]
    assert "Traceback" not in errors


def test_the_run_of_a_killed_worker_is_taken_again(tmp_path, storage):
    acts = ("wait",)
    killed = start_worker(tmp_path, storage, acts)
    wait_for(tmp_path / "nll" / "seed0" / "metrics.jsonl", killed)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    (tmp_path / "nll" / "go").touch()
    outcome = make_study(tmp_path, storage, acts, stream=io.StringIO()).run()
    assert not outcome.failures
    assert not unfinished(make_settings(tmp_path, acts))
    assert len(starts(tmp_path, 0)) == 2


def test_a_stopped_worker_gives_its_runs_back(tmp_path, storage):
    acts = ("wait", "wait", "wait")

    def interrupt():
        for seed in (0, 1):
            path = tmp_path / "nll" / f"seed{seed}" / "metrics.jsonl"
            while not path.exists():
                time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    study = make_study(tmp_path, storage, acts, 2, stream=io.StringIO())
    assert study.run().stopped_by == signal.SIGINT
    thread.join()
    (tmp_path / "nll" / "go").touch()
    outcome = make_study(tmp_path, storage, acts, 2, stream=io.StringIO()).run()
    assert outcome.stopped_by is None and not outcome.failures
    assert [len(starts(tmp_path, seed)) for seed in range(3)] == [2, 2, 1]


def test_failures_are_tried_again_by_the_next_worker(tmp_path, storage):
    for count in (1, 2):
        study = make_study(tmp_path, storage, ("fail",), stream=io.StringIO())
        assert len(study.run().failures) == 1
        assert len(starts(tmp_path, 0)) == count


def test_runs_are_told_by_what_they_are(tmp_path, storage):
    def do(act, **options):
        disk = tmp_path / f"disk {act} {len(options)}"
        stream = io.StringIO()
        make_study(disk, storage, (act,), stream=stream, **options).run()
        return len(starts(disk, 0))

    shift = {"corruptions": ["fog"], "severities": [1], "num_examples": None}
    assert do("") == 1
    assert do("fail") == 1
    assert do("", shift=shift) == 1
    # Finished on a disk that is not this one.
    make_study(tmp_path, storage, ("",), stream=io.StringIO()).run()
    assert not starts(tmp_path, 0)


def test_what_goes_wrong_with_the_storage_is_said(tmp_path, storage):
    queue = StorageQueue([], storage, "study")
    queue._error = OSError("gone")
    with pytest.raises(OSError, match="gone"):
        queue.count_left()
    queue.close()
    with pytest.raises(ValueError, match="storage='nothing'"):
        StorageQueue([], "nothing", "study")
