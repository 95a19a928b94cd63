"""Several processes end as one process with the global batch."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import textwrap

import numpy as np

from tests.training import remote, tiny, worker

ROOT = pathlib.Path(__file__).parents[2]
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(ROOT),
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "",
}
# Rounding moves weights by up to 2e-7; a batch that is counted twice, or rows
# that meet in another batch, by 1e-3.
ALMOST = {"rtol": 2e-5, "atol": 2e-6}


def free_addresses(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return [f"127.0.0.1:{port}" for port in ports]


def start(*command, **environment):
    return subprocess.Popen(
        [sys.executable, *command],
        env={**ENVIRONMENT, **environment},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def start_workers(*command):
    """Starts two processes that know of each other by TF_CONFIG."""
    cluster = {"worker": free_addresses(2)}
    tasks = [{"type": "worker", "index": index} for index in range(2)]
    configs = [{"cluster": cluster, "task": task} for task in tasks]
    return [start(*command, TF_CONFIG=json.dumps(each)) for each in configs]


def ends(processes):
    """Exit codes and what was written, once all have ended."""
    try:
        written = [process.communicate(timeout=600) for process in processes]
    finally:
        for process in processes:
            process.kill()
    codes = [process.returncode for process in processes]
    return codes, ["".join(each) for each in written]


def test_two_workers_that_were_killed_equal_one_process(tmp_path):
    command = ("-m", "tests.training.worker", tmp_path)
    codes, written = ends(start_workers(*command, "3"))
    # One may notice the other's death before its own.
    assert -9 in codes and 0 not in codes, written
    codes, written = ends(start_workers(*command))
    assert codes == [0, 0], written

    one = worker.make_trainer(None)
    rows = one.fit(worker.global_batches, worker.EPOCHS, verbose=False)
    evaluation = tiny.dataset(21, 8, seed=1, drop_remainder=False)
    accuracy = one.evaluate(evaluation)["accuracy"]
    ends_of_workers = []
    for index in range(2):
        with np.load(tmp_path / f"worker{index}.npz") as end:
            for number, expected in enumerate(tiny.weights(one)):
                actual = end[f"arr_{number}"]
                np.testing.assert_allclose(actual, expected, **ALMOST)
            logits = one.predict(evaluation)
            np.testing.assert_allclose(end["logits"], logits, atol=1e-5)
            assert np.isclose(end["loss"], rows[-1]["train/loss"])
            assert np.isclose(end["accuracy"], accuracy)
            ends_of_workers.append((end["mine"], end["best_kernel"]))
    # All workers agree on what was measured, and on the best.
    for left, right in zip(*ends_of_workers, strict=True):
        np.testing.assert_array_equal(left, right)
    epoch = 1 + np.argmin(ends_of_workers[0][0])
    folder = tmp_path / "run" / "checkpoints"
    assert (folder / "best" / f"best-{2 * epoch}.index").exists()
    names = [path.name for path in folder.glob("*.index")]
    assert sorted(names) == [f"ckpt-{step}.index" for step in (2, 3, 4)]
    log = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert len(log.splitlines()) == worker.EPOCHS


def test_two_hosts_over_grpc(tmp_path):
    cluster = {"worker": free_addresses(2)}
    program = f"""
        import tensorflow as tf
        tf.distribute.Server({cluster}, "worker", TASK, protocol="grpc").join()
    """
    program = textwrap.dedent(program)
    hosts = [
        start("-c", program.replace("TASK", str(task))) for task in range(2)
    ]
    try:
        addresses = ",".join(cluster["worker"])
        command = ("-m", "tests.training.remote", addresses, tmp_path)
        codes, written = ends([start(*command)])
    finally:
        for host in hosts:
            host.kill()
            host.communicate()
    assert codes == [0], written
    one = remote.make_trainer()
    one.fit(worker.global_batches, 2, verbose=False)
    evaluation = tiny.dataset(21, 8, seed=1, drop_remainder=False)
    with np.load(tmp_path / "end.npz") as end:
        for number, expected in enumerate(tiny.weights(one)):
            np.testing.assert_allclose(end[f"arr_{number}"], expected, **ALMOST)
        np.testing.assert_allclose(
            end["logits"], one.predict(evaluation), atol=1e-5
        )
        assert end["accuracy"] == one.evaluate(evaluation)["accuracy"]
