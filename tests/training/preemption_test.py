import os
import signal

import pytest
import tensorflow as tf

import caltrain_tf as ct
from caltrain_tf.training.preemption import StopSignal
from tests.training import tiny


@pytest.mark.parametrize(
    ("number", "end"),
    [
        (signal.SIGTERM, ct.training.Preempted),
        (signal.SIGINT, KeyboardInterrupt),
    ],
)
def test_a_signal_between_steps_saves(number, end, tmp_path, capfd):
    trained = tiny.trainer(steps_per_execution=1)
    train = trained._execution.train

    def train_and_terminate(iterator, num_steps, first_step):
        if first_step == 1:
            os.kill(os.getpid(), number)
        return train(iterator, num_steps, first_step)

    trained._execution.train = train_and_terminate
    before = signal.getsignal(number)
    with pytest.raises(end) as stopped:
        trained.fit(tiny.dataset(), 2, run=tmp_path, verbose=False)
    if number == signal.SIGTERM:
        assert stopped.value.code == 143
    else:
        assert "Ctrl-C again stops at once" in capfd.readouterr().err
    assert signal.getsignal(number) is before
    names = os.listdir(tmp_path / "checkpoints")
    assert "ckpt-2.index" in names


@pytest.mark.parametrize("saves", [True, False])
def test_ctrl_c_interrupts_at_once(saves):
    # The second one; or the first, where there is nothing to go on from.
    with StopSignal(tf.distribute.get_strategy(), saves) as stop:
        if saves:
            os.kill(os.getpid(), signal.SIGINT)
            assert stop.requested()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
