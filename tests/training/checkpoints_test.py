"""Runs end the same, whether or not they were killed."""

import os
import pathlib
import signal
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from caltrain_tf.training.checkpoints import (
    Checkpoints,
    Position,
    StopSignal,
    restore_model,
)
from tests.training import tiny, tiny_run

ROOT = pathlib.Path(__file__).parents[2]


class _Run:
    def __init__(self, folder, **options):
        self.model = keras.Sequential(
            [keras.Input([49]), keras.layers.Dense(1)]
        )
        variables = {"model": self.model.weights}
        self.checkpoints = Checkpoints(folder, variables, **options)
        self.position = self.checkpoints.position

    @property
    def value(self):
        return self.model.weights[0].numpy()[0, 0]

    def save(self, step):
        self.model.set_weights([np.full([49, 1], step), np.full([1], step)])
        self.position.step = step
        self.checkpoints.save()
        self.checkpoints.wait()


def _indices(folder):
    return sorted(name for name in os.listdir(folder) if name.endswith("index"))


def test_restores_the_newest_and_keeps_k(tmp_path):
    run = _Run(tmp_path, keep=2)
    assert run.checkpoints.restore() is None
    for step in (2, 9, 10):
        run.save(step)
    assert _indices(tmp_path) == ["ckpt-10.index", "ckpt-9.index"]
    again = _Run(tmp_path, keep=2)
    assert again.checkpoints.restore().endswith("ckpt-10")
    assert again.value == 10
    assert again.position.step == 10
    again.save(11)
    assert _indices(tmp_path) == ["ckpt-10.index", "ckpt-11.index"]


def _truncate(path, size):
    with open(path, "r+b") as file:
        file.truncate(size)


def _garble(path):
    with open(path, "r+b") as file:
        file.seek(40)
        file.write(b"garbled")


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: _truncate(f"{path}.data-00000-of-00001", 20),
        lambda path: _truncate(f"{path}.data-00000-of-00001", 0),
        lambda path: _garble(f"{path}.data-00000-of-00001"),
        lambda path: os.remove(f"{path}.data-00000-of-00001"),
        lambda path: _truncate(f"{path}.index", 0),
        lambda path: _truncate(f"{path}.index", 60),
    ],
)
def test_passes_over_a_damaged_one(tmp_path, damage):
    run = _Run(tmp_path)
    for step in (1, 2):
        run.save(step)
    damage(tmp_path / "ckpt-2")
    again = _Run(tmp_path)
    with pytest.warns(UserWarning, match="ckpt-2 is damaged"):
        assert again.checkpoints.restore().endswith("ckpt-1")
    assert again.value == 1
    assert again.position.step == 1
    again.save(2)
    whole = _Run(tmp_path)
    assert whole.checkpoints.restore().endswith("ckpt-2")


def test_clears_up_after_a_kill(tmp_path):
    run = _Run(tmp_path)
    for step in (1, 2, 3):
        run.save(step)
    (tmp_path / "checkpoint").write_text("garbled")
    os.makedirs(tmp_path / "ckpt-4_temp")
    (tmp_path / "ckpt-notes.index").write_text("")
    again = _Run(tmp_path, keep=2)
    assert again.checkpoints.restore().endswith("ckpt-3")
    again.save(4)
    os.remove(tmp_path / "ckpt-notes.index")
    assert _indices(tmp_path) == ["ckpt-3.index", "ckpt-4.index"]
    assert not os.path.exists(tmp_path / "ckpt-4_temp")


@pytest.mark.parametrize("file", ["data-00000-of-00001", "index"])
def test_no_whole_one_is_an_error_and_no_start_from_step_0(tmp_path, file):
    _Run(tmp_path).save(1)
    _truncate(tmp_path / f"ckpt-1.{file}", 0)
    with pytest.warns(UserWarning, match="ckpt-1 is damaged"):
        with pytest.raises(ValueError, match="Remove them to begin anew"):
            _Run(tmp_path).checkpoints.restore()


# What a bucket may answer, or a disk, while all files are whole.
FAULTS = [
    tf.errors.UnavailableError(None, None, "503 Service Unavailable"),
    tf.errors.PermissionDeniedError(None, None, "403 Forbidden"),
    tf.errors.DeadlineExceededError(None, None, "no answer"),
    tf.errors.InternalError(None, None, "500"),
    OSError(5, "Input/output error"),
]


@pytest.mark.parametrize(
    "fault", FAULTS, ids=lambda fault: type(fault).__name__
)
@pytest.mark.parametrize("moment", ["table", "variables"])
def test_a_checkpoint_that_cannot_be_read_now_is_an_error(
    tmp_path, monkeypatch, fault, moment
):
    run = _Run(tmp_path)
    for step in (1, 2):
        run.save(step)

    def fail(*args, **kwargs):
        raise fault

    if moment == "table":
        monkeypatch.setattr(tf.raw_ops, "RestoreV2", fail)
    else:
        monkeypatch.setattr(tf.train.Checkpoint, "restore", fail)
    with pytest.raises(OSError, match="ckpt-2 cannot be read now") as seen:
        _Run(tmp_path).checkpoints.restore()
    assert seen.value.__cause__ is fault
    with pytest.raises(OSError, match="ckpt-2 cannot be read now"):
        restore_model(tmp_path, run.model)


@pytest.mark.parametrize("function", ["exists", "listdir"])
def test_a_bucket_that_does_not_answer_is_not_an_empty_folder(
    tmp_path, monkeypatch, function
):
    def fit():
        trained = tiny.trainer()
        return trained.fit(tiny.dataset(), 2, run=tmp_path, verbose=False)

    rows = fit()
    log = (tmp_path / "metrics.jsonl").read_text()
    real = getattr(tf.io.gfile, function)

    def fail(path):
        if "checkpoints" in str(path):
            raise FAULTS[0]
        return real(path)

    with monkeypatch.context() as patches:
        patches.setattr(tf.io.gfile, function, fail)
        with pytest.raises(OSError, match="checkpoints cannot be read now"):
            fit()
    # Nothing began anew, and nothing of the log is lost.
    assert (tmp_path / "metrics.jsonl").read_text() == log
    assert fit() == rows


def test_a_checkpoint_is_of_the_moment_it_was_saved(tmp_path):
    run = _Run(tmp_path)
    run.save(1)
    # Written by a thread, while training goes on.
    run.position.step = 2
    run.checkpoints.save()
    run.position.step = 3
    run.model.set_weights([np.full([49, 1], 7), np.full([1], 7)])
    run.checkpoints.wait()
    again = _Run(tmp_path)
    assert again.checkpoints.restore().endswith("ckpt-2")
    assert (again.position.step, again.value) == (2, 1)


def test_a_checkpoint_that_was_not_written_is_an_error(tmp_path):
    run = _Run(tmp_path)
    run.save(1)
    os.remove(tmp_path / "ckpt-1.index")
    with pytest.raises(OSError, match="could not be written: .*ckpt-1"):
        run.checkpoints.wait()


def test_another_model_is_an_error_and_no_damage(tmp_path):
    _Run(tmp_path).save(1)
    for layers in ([keras.Input([3]), keras.layers.Dense(1)], None):
        model = tiny.network() if layers is None else keras.Sequential(layers)
        with pytest.raises(ValueError, match="of another model"):
            Checkpoints(tmp_path, {"model": model.weights}).restore()


def test_others_than_the_chief_write_elsewhere(tmp_path):
    run = _Run(tmp_path, chief=False)
    run.save(1)
    run.checkpoints.save_best()
    run.checkpoints.wait()
    assert os.listdir(tmp_path) == []
    elsewhere = run.checkpoints._thrown_away
    assert _indices(elsewhere) == ["ckpt-1.index"]
    run.checkpoints.close()
    assert not os.path.exists(elsewhere)


def test_position():
    position = Position()
    position.advance("train", 3, {"loss": [0.1, 0.2, 0.3]})
    position.advance("train", 1, {"loss": [0.4]})
    # In this order, however the steps are grouped.
    assert position.sums == {"train": {"loss": 0.1 + 0.2 + 0.3 + 0.4}}
    assert (position.step, position.step_in_epoch) == (4, 4)
    position.end_epoch()
    assert (position.epoch, position.step, position.step_in_epoch) == (1, 4, 0)
    assert position.sums == {}


def test_restore_model_says_what_is_missing(tmp_path):
    with pytest.raises(ValueError, match="No checkpoint was found"):
        restore_model(tmp_path, tiny.network())
    with pytest.raises(ValueError, match="which='last'"):
        restore_model(tmp_path, tiny.network(), which="last")


@pytest.mark.parametrize(
    ("number", "end"),
    [
        (signal.SIGTERM, ct.training.Preempted),
        (signal.SIGINT, KeyboardInterrupt),
    ],
)
def test_a_signal_between_steps_saves(number, end, tmp_path, capfd):
    trained = tiny.trainer(steps_per_execution=1)
    run_steps = trained._run_steps

    def run_steps_and_terminate(phase, batches, count, first_step):
        if first_step == 1:
            os.kill(os.getpid(), number)
        return run_steps(phase, batches, count, first_step)

    trained._run_steps = run_steps_and_terminate
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
    with StopSignal(saves) as stop:
        if saves:
            os.kill(os.getpid(), signal.SIGINT)
            assert stop.received == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def _run(path, *options):
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "",
    }
    process = subprocess.run(
        [sys.executable, "-m", "tests.training.tiny_run", path, *options],
        env=environment,
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    return process.returncode, process.stderr


def test_killed_runs_end_in_the_same_weights(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    tiny_run.run(str(whole))
    # The third save is the one at the end of the first epoch.
    ends = [
        _run(killed, option) for option in ("--kill_in_save=3", "--term_at=9")
    ]
    assert [code for code, _ in ends] == [-9, 143]
    assert "ckpt-6 is damaged and passed over" in ends[1][1]
    tiny_run.run(str(killed))

    with np.load(whole / "end.npz") as one, np.load(killed / "end.npz") as two:
        assert one.files == two.files
        for name in one.files:
            np.testing.assert_array_equal(one[name], two[name])
    log = (whole / "metrics.jsonl").read_text()
    assert len(log.splitlines()) == tiny_run.EPOCHS
    assert (killed / "metrics.jsonl").read_text() == log
    for folder in ("checkpoints", "checkpoints/best"):
        names = [
            sorted(
                name
                for name in os.listdir(path / folder)
                if name.endswith(".index")
            )
            for path in (whole, killed)
        ]
        assert names[0] == names[1]


def test_the_same_call_goes_on(tmp_path):
    def fit(epochs):
        trained = tiny_run.make_trainer()
        rows = trained.fit(tiny.shuffled, epochs, run=tmp_path, verbose=False)
        return trained, rows

    fit(1)
    more, rows = fit(3)
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    assert [row["step"] for row in rows] == [4, 8, 12]
    # All done: nothing is trained any more.
    again, same_rows = fit(3)
    assert same_rows == rows
    tiny.assert_same_weights(more, again)


def test_two_replicas_go_on_in_the_middle_of_an_epoch(two_replicas, tmp_path):
    class Stopped(Exception):
        pass

    def make_trainer():
        return tiny.trainer(
            two_replicas,
            lambda: tiny.network(keras.layers.BatchNormalization(), 0.3),
            metrics=[keras.metrics.SparseCategoricalAccuracy("accuracy")],
        )

    def fit(trainer, run):
        options = {"run": run, "checkpoint_every_steps": 1, "verbose": False}
        return trainer.fit(tiny.shuffled, 2, **options)

    stopped = make_trainer()
    run_steps = stopped._run_steps

    def run_steps_until(phase, batches, count, first_step):
        if first_step == 6:
            raise Stopped
        return run_steps(phase, batches, count, first_step)

    stopped._run_steps = run_steps_until
    with pytest.raises(Stopped):
        fit(stopped, tmp_path)
    resumed, whole = make_trainer(), make_trainer()
    # The epoch's accuracy is of the steps before and after the stop.
    assert fit(resumed, tmp_path) == fit(whole, None)
    tiny.assert_same_weights(resumed, whole)
    for one, other in zip(
        resumed.optimizer.variables, whole.optimizer.variables, strict=True
    ):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
