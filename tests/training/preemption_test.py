"""SIGTERM in the middle of everything that takes long.

Nothing here asserts a time: without an answer to the signal, a run would take
minutes and end without being preempted.
"""

import json
import os
import signal
import time

import pytest
import tensorflow as tf

import caltrain_tf as ct
from tests.training import tiny


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


def test_executions_grow_slowly():
    # The first batches are read ahead, and say little about those that follow.
    trained, counts = tiny.trainer(steps_per_execution=10**6), []
    run_steps = trained._run_steps

    def recorded(phase, batches, count, first_step):
        counts.append(count)
        return run_steps(phase, batches, count, first_step)

    trained._run_steps = recorded
    trained.fit(tiny.dataset().repeat(10), 1, verbose=False)
    assert counts[0] == 1 and sum(counts) == 40
    for before, after in zip(counts, counts[1:], strict=False):
        assert after <= 2 * before


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
