import errno
import json
import os
import subprocess
import sys
import textwrap
import threading
import time

import filelock
import pytest

from caltrain_tf.training.run_folder import (
    RunFolder,
    check_config,
    wait_until_free,
)


def test_one_configuration_and_one_process_at_a_time(tmp_path):
    path = tmp_path / "a" / "b"
    first = {"loss": {"primary": "focal", "beta": 1.0}, "epochs": (60, 120)}
    with RunFolder(path, first) as run:
        with open(run.file("config.json")) as file:
            assert json.load(file) == json.loads(json.dumps(first))
        with pytest.raises(ValueError, match="in use by another process"):
            RunFolder(path, first).__enter__()
    second = {"loss": {"primary": "nll", "beta": 1.0}, "steps": 3}
    with pytest.raises(ValueError) as refused:
        RunFolder(path, second).__enter__()
    message = str(refused.value)
    assert 'loss.primary="focal" there, "nll" here' in message
    assert "epochs=[60, 120] there, absent here" in message
    assert "steps=absent there, 3 here" in message
    assert "beta" not in message
    # The lock was given back.
    with RunFolder(path, first):
        pass
    # A worker that is not the chief writes nothing.
    with RunFolder(tmp_path / "run", {"seed": 0}, chief=False):
        assert os.listdir(tmp_path) == ["a"]


def test_a_kill_gives_the_lock_back(tmp_path):
    # Only the lock, without the seconds that TensorFlow takes to start.
    program = textwrap.dedent(
        f"""
        import filelock, signal
        lock = filelock.FileLock({str(tmp_path / ".lock")!r})
        with lock:
            print("held", flush=True)
            signal.pause()
        """
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(ValueError, match="in use by another process"):
            RunFolder(tmp_path).__enter__()
        process.kill()
    with RunFolder(tmp_path):
        pass


def test_waiting_for_the_process_before(tmp_path):
    wait_until_free(tmp_path / "not there")
    held, ended = threading.Event(), []

    def hold():
        with RunFolder(tmp_path):
            held.set()
            time.sleep(0.3)
            ended.append(True)

    other = threading.Thread(target=hold)
    other.start()
    held.wait()
    wait_until_free(tmp_path)
    assert ended
    other.join()


def test_file_systems_without_locks_are_refused(tmp_path, monkeypatch):
    def acquire(lock, timeout):
        raise OSError(errno.ENOLCK, "No locks available")

    (tmp_path / ".lock").touch()
    monkeypatch.setattr(filelock.FileLock, "acquire", acquire)
    with pytest.raises(ValueError, match="cannot be locked: No locks avail"):
        RunFolder(tmp_path).__enter__()
    with pytest.raises(ValueError, match="cannot be locked: No locks avail"):
        wait_until_free(tmp_path)


def test_a_folder_in_a_bucket():
    path = "ram://bucket/run"
    with RunFolder(path, {"seed": 0}) as run:
        assert run.file("config.json") == "ram://bucket/run/config.json"
    check_config(path, {"seed": 0})
    with pytest.raises(ValueError, match="seed=0 there, 1 here"):
        RunFolder(path, {"seed": 1}).__enter__()
