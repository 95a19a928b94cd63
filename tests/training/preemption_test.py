import os
import signal

import pytest

import caltrain_tf as ct
from tests.training import tiny


def test_sigterm_between_steps_saves(tmp_path):
    trained = tiny.trainer(steps_per_execution=1)
    train = trained._execution.train

    def train_and_terminate(iterator, num_steps, first_step):
        if first_step == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return train(iterator, num_steps, first_step)

    trained._execution.train = train_and_terminate
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ct.training.Preempted) as stopped:
        trained.fit(tiny.dataset(), 2, run=tmp_path, verbose=False)
    assert stopped.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is before
    names = os.listdir(tmp_path / "checkpoints")
    assert "ckpt-2.index" in names
