"""SIGTERM in the middle of everything that takes long.

Nothing here asserts a time: without an answer to the signal, a run would take
minutes and end without being preempted.
"""

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
import tensorflow as tf

import caltrain_tf as ct
from caltrain_tf.training.checkpoints import Checkpoints
from tests.training import tiny

ROOT = pathlib.Path(__file__).parents[2]


def _terminate():
    os.kill(os.getpid(), signal.SIGTERM)


def _slow(at, seconds=0.05):
    """Many batches that take their time, one of which brings SIGTERM."""
    seen = []

    def wait(x):
        seen.append(x)
        if len(seen) == at:
            _terminate()
        time.sleep(seconds)
        return x

    def wait_for(x, y):
        return tf.ensure_shape(tf.py_function(wait, [x], x.dtype), x.shape), y

    return tiny.dataset().repeat(500).map(wait_for)


def _fit_until_preempted(path, train, **options):
    # Far more steps at once than there may be.
    trained = tiny.trainer(steps_per_execution=10**6)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ct.training.Preempted) as ended:
        trained.fit(train, 1, run=path, verbose=False, **options)
    assert ended.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is before
    names = os.listdir(path / "checkpoints")
    return max(
        int(name.removeprefix("ckpt-").removesuffix(".index"))
        for name in names
        if name.endswith(".index")
    )


def test_in_a_long_execution(tmp_path):
    # All but the batches that were read ahead, two by each prefetch.
    assert 50 < _fit_until_preempted(tmp_path, _slow(60)) < 500


def test_in_an_evaluation(tmp_path):
    slow = {"evaluations": {"test": _slow(30)}}
    assert _fit_until_preempted(tmp_path, tiny.dataset(), **slow) == 4
    assert not (tmp_path / "metrics.jsonl").read_text()
    # Later, only the evaluation is left to do.
    again = tiny.trainer()
    again._run_steps = None
    options = {"evaluations": {"test": tiny.dataset()}, "verbose": False}
    (row,) = again.fit(tiny.dataset(), 1, run=tmp_path, **options)
    assert tiny.trainer().fit(tiny.dataset(), 1, **options) == [row]
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == row


def test_in_a_save(tmp_path, monkeypatch):
    save, wait = tf.train.CheckpointManager.save, Checkpoints.wait
    saved, begun, awaited = [], threading.Event(), threading.Event()

    def save_slowly(manager, checkpoint_number, options):
        def hold(path):
            if not saved:
                _terminate()
                begun.set()
                awaited.wait(timeout=60)
            saved.append(checkpoint_number)

        options.experimental_write_callbacks.insert(0, hold)
        path = save(manager, checkpoint_number, options=options)
        begun.wait(timeout=60)
        return path

    def wait_and_tell(checkpoints):
        awaited.set()
        wait(checkpoints)

    monkeypatch.setattr(tf.train.CheckpointManager, "save", save_slowly)
    monkeypatch.setattr(Checkpoints, "wait", wait_and_tell)
    options = {"checkpoint_every_steps": 5}
    step = _fit_until_preempted(tmp_path, _slow(-1), **options)
    # What is on its way is awaited, and nothing else is written.
    assert saved == [step] == [5]
    folder = tmp_path / "checkpoints"
    assert ct.training.restore_model(folder, tiny.network())


def test_a_second_signal_ends_at_once():
    program = """
        import time
        import tensorflow as tf
        from caltrain_tf.training.checkpoints import StopSignal

        def hang():
            print("hangs", flush=True)
            time.sleep(10**6)
            return 0

        with StopSignal():
            tf.function(lambda: tf.py_function(hang, [], tf.int32))()
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "hangs\n"
        process.send_signal(signal.SIGTERM)
        # It waits for TensorFlow, which never returns.
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=300) == 143
    finally:
        process.kill()
        process.communicate()
