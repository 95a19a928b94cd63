import dataclasses
import os
import pathlib
import signal
import socket
import subprocess
import sys
import textwrap
import threading

import pytest

from caltrain_tf import files
from caltrain_tf.experiments import pool as room
from caltrain_tf.experiments.study import do_runs, unfinished
from tests.experiments.fake_runs import ROOT, make_run, starts, wait_for


@pytest.fixture
def gpus(monkeypatch):
    """Makes TensorFlow see some GPUs."""
    import tensorflow as tf

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def see(count):
        monkeypatch.setattr(
            tf.config, "list_physical_devices", lambda _: ["GPU"] * count
        )

    return see


def test_a_future_says_how_a_process_ended(tmp_path):
    acts = ("", "fail", "die")
    runs = [make_run(tmp_path, seed, act) for seed, act in enumerate(acts)]
    with room.LocalPool(ROOT) as pool:
        well, failed, died = [
            future.result() for future in [pool.submit(run) for run in runs]
        ]
    assert (well.failure, failed.failure, died.failure) == (
        "",
        "exit code 1",
        "killed by SIGKILL",
    )
    assert failed.last_line == "ValueError: no such thing"
    assert died.last_line == ""
    first, *_, last = (
        pathlib.Path(runs[1].folder, "log.txt").read_text().splitlines()
    )
    assert first.startswith("--- 20")
    assert last == f"--- exit code 1 after {failed.seconds:.1f} s"


def test_slots_share_the_processor_and_the_gpus(tmp_path, monkeypatch, gpus):
    for name in ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(room.joblib, "cpu_count", lambda: 6)
    gpus(4)
    runs = [make_run(tmp_path, seed, "wait") for seed in (0, 1)]
    with room.LocalPool(ROOT, parallel=2) as pool:
        futures = [pool.submit(run) for run in runs]
        # Both are there at the same time.
        wait_for(lambda: all(starts(run) for run in runs))
        (tmp_path / "nll" / "go").touch()
        assert all(not future.result().failure for future in futures)
    words = sorted(starts(run)[0][1:] for run in runs)
    assert words == [["3", "0,2"], ["3", "1,3"]]


def test_which_gpus_a_slot_has(monkeypatch, gpus):
    gpus(0)
    assert room.gpus_of_slots(2) == [None, None]
    gpus(2)
    assert room.gpus_of_slots(1) == ["0,1"]
    assert room.gpus_of_slots(3) == ["0", "1", "0"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,GPU-7")
    assert room.gpus_of_slots(2) == ["5", "GPU-7"]


def test_a_pool_that_is_left_stops_its_runs(tmp_path):
    runs = [make_run(tmp_path, seed, "wait") for seed in (0, 1)]
    with room.LocalPool(ROOT) as pool:
        futures = [pool.submit(run) for run in runs]
        metrics = pathlib.Path(runs[0].folder, "metrics.jsonl")
        wait_for(metrics.exists)
    assert futures[0].result().failure == "exit code 143"
    assert futures[1].cancelled() and not starts(runs[1])
    with pytest.raises(ProcessLookupError):
        os.kill(int(starts(runs[0])[0][0]), 0)


def test_runs_stop_when_their_study_was_killed(tmp_path):
    run = make_run(tmp_path, 0, "wait")
    program = textwrap.dedent(
        f"""
        import os, runpy
        # The file alone, without the seconds that the package takes to import.
        room = runpy.run_path({room.__file__!r})
        run = room["Run"]({run.name!r}, {{}}, {run.folder!r}, {run.commands!r})
        room["execute"](run, {str(ROOT)!r}, dict(os.environ))
        """
    )
    process = subprocess.Popen([sys.executable, "-c", program])
    wait_for(pathlib.Path(run.folder, "metrics.jsonl").exists)
    process.kill()
    process.wait()
    wait_for(pathlib.Path(run.folder, "orphan").exists)


def test_the_log_of_a_run_in_a_bucket(tmp_path):
    (tmp_path / "hello.py").write_text("print('hello')")
    (tmp_path / "fail.py").write_text("exit(3)")
    commands = ("hello.py",), ("fail.py",), ("hello.py",)
    run = room.Run("", {}, "ram://pool/run", commands)
    for _ in range(2):
        outcome = room.execute(run, tmp_path, dict(os.environ))
        # The third command does not follow a second one that fails.
        assert (outcome.failure, outcome.last_line) == ("exit code 3", "hello")
    log = files.as_path("ram://pool/run/log.txt").read_text()
    assert log.count("--- 20") == log.count("--- exit code 3 after") == 2
    assert log.count("hello\n") == 2


def test_ray_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r'pip install "caltrain_tf\[ray\]"'):
        room.RayPool(ROOT, "auto")


def is_gone(pid):
    try:
        state = pathlib.Path("/proc", pid, "stat").read_text()
    except OSError:
        return True
    # One that nobody asks about any more does nothing either.
    return state.rpartition(")")[2].split()[0] == "Z"


def test_a_ray_cluster_that_is_not_there():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
        # Nobody listens.
        with pytest.raises(ValueError, match=f"--ray={address}, where.*refus"):
            room.RayPool(ROOT, address)


@pytest.fixture
def cluster(monkeypatch):
    """A Ray cluster of two nodes with a processor each."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    import ray
    from ray.cluster_utils import Cluster

    options = {
        "num_cpus": 1,
        "object_store_memory": 80 * 2**20,
        "resources": {"TPU": 4},
    }
    cluster = Cluster(
        initialize_head=True,
        head_node_args={**options, "include_dashboard": False},
    )
    cluster.add_node(**options)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def on_nodes(run):
    ((_, *arguments),) = run.commands
    commands = (("baselines/fake_run.py", *arguments),)
    return dataclasses.replace(run, commands=commands)


def test_a_node_that_dies_costs_no_run(tmp_path, cluster, capfd):
    """All of Ray in one test: a cluster takes seconds to start."""
    runs = [make_run(tmp_path, seed, "wait") for seed in (0, 1, 2)]
    runs.append(make_run(tmp_path, 3, "fail"))
    (other,) = cluster.worker_nodes
    # The nodes get these folders of the repository alone.
    root = tmp_path / "repository"
    for name in ("baselines", "caltrain_tf", "configs", "tests"):
        (root / name).mkdir(parents=True)
    program = (ROOT / runs[0].commands[0][0]).read_text()
    (root / "baselines" / "fake_run.py").write_text(program)
    runs = [on_nodes(run) for run in runs]

    def lose_a_node():
        # One on each node.
        wait_for(lambda: sum(bool(starts(run)) for run in runs) == 2)
        processes = [words[0] for run in runs for words in starts(run)]
        cluster.remove_node(other, allow_graceful=False)
        wait_for(lambda: any(map(is_gone, processes)))
        (tmp_path / "nll" / "go").touch()

    with room.RayPool(root, cluster.address, resources={"TPU": 4}) as pool:
        thread = threading.Thread(target=lose_a_node)
        thread.start()
        failures = do_runs(runs, pool)
        thread.join()
        assert list(failures) == runs[3:]
        assert failures[runs[3]].failure == "exit code 1"
        assert failures[runs[3]].last_line == "ValueError: no such thing"
        assert unfinished(runs) == runs[3:]
        # The node's run was started again, and no other was.
        assert sorted(len(starts(run)) for run in runs) == [1, 1, 1, 2]
        (lost,) = [run for run in runs if len(starts(run)) == 2]
        assert lost in runs[:3]
        assert not do_runs(runs[:3], pool)
        assert sorted(len(starts(run)) for run in runs) == [1, 1, 1, 2]

    # Ctrl-C stops what is running, and what is waiting.
    more = [make_run(tmp_path, seed, "wait", "mse") for seed in (0, 1)]
    more = [on_nodes(run) for run in more]

    def interrupt():
        # A run writes this once it listens to signals.
        logs = [pathlib.Path(run.folder, "metrics.jsonl") for run in more]
        wait_for(lambda: any(log.exists() for log in logs))
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with (
        pytest.raises(KeyboardInterrupt),
        room.RayPool(root, cluster.address) as pool,
    ):
        do_runs(more, pool)
    thread.join()
    (stopped,) = [run for run in more if starts(run)]
    # By a signal, or because its input was closed before that came.
    wait_for(pathlib.Path(stopped.folder, "asked").exists)
    said = capfd.readouterr().err
    assert "FAILED, exit code 1: ValueError: no such thing" in said
    assert "Stopping the runs, with checkpoints" in said
    assert "Traceback" not in said
