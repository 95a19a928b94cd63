"""Two processes on loopback end as one process with the global batch."""

import json
import os
import pathlib
import socket
import subprocess
import sys

import numpy as np

from tests.training import tiny
from tests.training import worker

ROOT = pathlib.Path(__file__).parents[2]


def _free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _run_workers(path):
    addresses = [f"127.0.0.1:{port}" for port in _free_ports(2)]
    processes = []
    for index in range(2):
        task = {"type": "worker", "index": index}
        config = {"cluster": {"worker": addresses}, "task": task}
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "CUDA_VISIBLE_DEVICES": "",
            "TF_CONFIG": json.dumps(config),
        }
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "tests.training.worker", path],
                env=environment,
                cwd=ROOT,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    try:
        messages = [
            process.communicate(timeout=400)[1] for process in processes
        ]
    finally:
        for process in processes:
            process.kill()
    for process, message in zip(processes, messages, strict=True):
        assert process.returncode == 0, message[-3000:]


def test_two_workers_equal_one_process(tmp_path):
    _run_workers(tmp_path)
    one = worker.make_trainer(None)
    rows = one.fit(tiny.dataset(32), worker.EPOCHS, verbose=False)
    weights = tiny.weights(one)
    one.fit(tiny.dataset(32), 1, verbose=False)
    evaluation = tiny.dataset(21, 8, seed=1, drop_remainder=False)
    logits = one.predict(evaluation)
    for index in range(2):
        with np.load(tmp_path / f"worker{index}.npz") as end:
            for number, expected in enumerate(weights):
                np.testing.assert_allclose(
                    end[f"arr_{number}"], expected, rtol=2e-5, atol=2e-6
                )
            # TensorFlow deals rows out otherwise, and every loss that sees
            # the global batch is the same.
            np.testing.assert_allclose(
                end["sharded_kernel"],
                tiny.weights(one)[0],
                rtol=2e-5,
                atol=2e-6,
            )
            np.testing.assert_allclose(end["logits"], logits, atol=1e-5)
            assert np.isclose(end["loss"], rows[-1]["train/loss"])
            accuracy = one.evaluate(evaluation)["accuracy"]
            assert np.isclose(end["accuracy"], accuracy)
    names = os.listdir(tmp_path / "run" / "checkpoints")
    assert sorted(name for name in names if name.endswith("index")) == [
        "ckpt-2.index",
        "ckpt-4.index",
    ]
    log = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert len(log.splitlines()) == worker.EPOCHS
