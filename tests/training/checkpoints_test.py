"""Runs end the same, whether or not they were killed."""

import http.server
import inspect
import os
import pathlib
import signal
import subprocess
import sys
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from caltrain_tf.training import checkpoints as checkpointing
from caltrain_tf.training.checkpoints import (
    Checkpoints,
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


def test_restores_the_newest_keeps_k_and_clears_up_after_a_kill(tmp_path):
    run = _Run(tmp_path, keep=2)
    assert run.checkpoints.restore() is None
    for step in (2, 9, 10):
        run.save(step)
    assert _indices(tmp_path) == ["ckpt-10.index", "ckpt-9.index"]
    (tmp_path / "checkpoint").write_text("garbled")
    os.makedirs(tmp_path / "ckpt-11_temp")
    again = _Run(tmp_path, keep=2)
    assert again.checkpoints.restore().endswith("ckpt-10")
    assert (again.value, again.position.step) == (10, 10)
    again.save(11)
    assert _indices(tmp_path) == ["ckpt-10.index", "ckpt-11.index"]
    assert not os.path.exists(tmp_path / "ckpt-11_temp")


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
        lambda path: _garble(f"{path}.data-00000-of-00001"),
        lambda path: os.remove(f"{path}.data-00000-of-00001"),
        lambda path: _truncate(f"{path}.index", 0),
        lambda path: _truncate(f"{path}.index", 60),
    ],
)
def test_passes_over_a_damaged_one_but_not_over_all(tmp_path, damage):
    run = _Run(tmp_path)
    for step in (1, 2):
        run.save(step)
    damage(tmp_path / "ckpt-2")
    again = _Run(tmp_path)
    with pytest.warns(UserWarning, match="ckpt-2 is damaged"):
        assert again.checkpoints.restore().endswith("ckpt-1")
    assert (again.value, again.position.step) == (1, 1)
    again.save(2)
    assert _Run(tmp_path).checkpoints.restore().endswith("ckpt-2")
    # Nothing starts from step 0 over a folder that has checkpoints.
    for step in (1, 2):
        damage(tmp_path / f"ckpt-{step}")
    with pytest.warns(UserWarning, match="is damaged"):
        with pytest.raises(ValueError, match="Remove them to begin anew"):
            _Run(tmp_path).checkpoints.restore()


# What a bucket may answer, or a disk, while all files are whole.
FAULTS = [
    tf.errors.UnavailableError(None, None, "503 Service Unavailable"),
    tf.errors.PermissionDeniedError(None, None, "403 Forbidden"),
    tf.errors.DeadlineExceededError(None, None, "no answer"),
    OSError(5, "Input/output error"),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda each: type(each).__name__)
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


def test_a_bucket_that_does_not_answer_is_not_an_empty_folder(
    tmp_path, monkeypatch
):
    def fit():
        trained = tiny.trainer()
        return trained.fit(tiny.dataset(16), 1, run=tmp_path, verbose=False)

    rows = fit()
    log = (tmp_path / "metrics.jsonl").read_text()
    for function in ("exists", "listdir"):
        real = getattr(tf.io.gfile, function)

        def fail(path, real=real):
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
    os.remove(tmp_path / "ckpt-2.index")
    with pytest.raises(OSError, match="could not be written: .*ckpt-2"):
        run.checkpoints.wait()


def test_checkpoints_are_written_every_few_seconds(tmp_path):
    trained = tiny.trainer(steps_per_execution=1)
    parameters = inspect.signature(trained.fit).parameters
    assert parameters["checkpoint_every_seconds"].default == 600
    options = {"run": tmp_path, "keep": 9, "checkpoint_every_seconds": 1e-9}
    trained.fit(tiny.dataset(32), 1, **options, verbose=False)
    names = ["ckpt-1.index", "ckpt-2.index"]
    assert _indices(tmp_path / "checkpoints") == names


def test_errors_say_what_is_missing_or_of_another_model(tmp_path):
    with pytest.raises(ValueError, match="No checkpoint was found"):
        restore_model(tmp_path, tiny.network())
    with pytest.raises(ValueError, match="which='last'"):
        restore_model(tmp_path, tiny.network(), which="last")
    _Run(tmp_path).save(1)
    for layers in ([keras.Input([3]), keras.layers.Dense(1)], None):
        model = tiny.network() if layers is None else keras.Sequential(layers)
        with pytest.raises(ValueError, match="of another model"):
            Checkpoints(tmp_path, {"model": model.weights}).restore()


def test_others_than_the_chief_write_elsewhere(tmp_path):
    run = _Run(tmp_path, chief=False)
    run.save(1)
    run.checkpoints.save(best=True)
    run.checkpoints.wait()
    assert os.listdir(tmp_path) == []
    elsewhere = run.checkpoints._temporary
    assert _indices(elsewhere) == ["ckpt-1.index"]
    run.checkpoints.close()
    assert not os.path.exists(elsewhere)


def test_ctrl_c_saves_and_a_second_one_interrupts(tmp_path, capfd):
    trained = tiny.trainer(steps_per_execution=1)
    tiny.at_step(trained, 1, lambda: os.kill(os.getpid(), signal.SIGINT))
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        trained.fit(tiny.dataset(), 2, run=tmp_path, verbose=False)
    assert "Ctrl-C again stops at once" in capfd.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before
    assert "ckpt-2.index" in os.listdir(tmp_path / "checkpoints")
    for saves in (True, False):
        with StopSignal(saves) as stop:
            if saves:
                os.kill(os.getpid(), signal.SIGINT)
                assert stop.received == signal.SIGINT
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)


def test_googles_notice_of_preemption_stops(monkeypatch):
    asked = []

    class Metadata(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append((self.path, self.headers["Metadata-Flavor"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"TRUE")

        def log_message(self, *args):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Metadata) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}/preempted"
        monkeypatch.setattr(checkpointing, "_NOTICE", address)
        monkeypatch.setattr(checkpointing, "_is_on_google_cloud", lambda: True)
        with StopSignal() as stop:
            thread.join()
            while stop.received is None:
                pass
            # The SIGTERM that follows changes nothing.
            os.kill(os.getpid(), signal.SIGTERM)
            with pytest.raises(ct.training.Preempted):
                stop.stop()
    assert asked == [("/preempted", "Google")]


def test_second_sigterm_ends_the_process(monkeypatch):
    codes = []
    monkeypatch.setattr(os, "_exit", codes.append)
    with StopSignal() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.received == signal.SIGTERM and not codes
        os.kill(os.getpid(), signal.SIGTERM)
        assert codes == [143]


def test_killed_runs_end_in_the_same_weights(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    tiny_run.run(str(whole))
    # The third save is the one at the end of the first epoch.
    process = subprocess.run(
        [sys.executable, "-m", "tests.training.tiny_run", killed, "3"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
        cwd=ROOT,
    )
    assert process.returncode == -9

    def terminate(trainer):
        tiny.at_step(trainer, 9, lambda: os.kill(os.getpid(), signal.SIGTERM))

    with pytest.warns(UserWarning, match="ckpt-6 is damaged and passed over"):
        with pytest.raises(ct.training.Preempted) as ended:
            tiny_run.run(str(killed), terminate)
    assert ended.value.code == 143
    tiny_run.run(str(killed))

    with np.load(whole / "end.npz") as one, np.load(killed / "end.npz") as two:
        assert one.files == two.files
        for name in one.files:
            np.testing.assert_array_equal(one[name], two[name])
    log = (whole / "metrics.jsonl").read_text()
    assert len(log.splitlines()) == tiny_run.EPOCHS
    assert (killed / "metrics.jsonl").read_text() == log
    for folder in ("checkpoints", "checkpoints/best"):
        assert _indices(whole / folder) == _indices(killed / folder)


def test_two_replicas_go_on_in_the_middle_of_an_epoch(two_replicas, tmp_path):
    def make_trainer():
        return tiny.trainer(
            two_replicas,
            lambda: tiny.network(keras.layers.BatchNormalization(), 0.3),
            metrics=[keras.metrics.SparseCategoricalAccuracy("accuracy")],
        )

    def fit(trainer, run):
        options = {"run": run, "checkpoint_every_steps": 1, "verbose": False}
        return trainer.fit(tiny.shuffled, 2, **options)

    def stop():
        raise InterruptedError

    stopped = make_trainer()
    tiny.at_step(stopped, 6, stop)
    with pytest.raises(InterruptedError):
        fit(stopped, tmp_path)
    resumed, whole = make_trainer(), make_trainer()
    # The epoch's accuracy is of the steps before and after the stop.
    assert fit(resumed, tmp_path) == fit(whole, None)
    tiny.assert_same_weights(resumed, whole)
    for one, other in zip(
        resumed.optimizer.variables, whole.optimizer.variables, strict=True
    ):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    # All done: nothing is trained any more.
    again = make_trainer()
    again._run_steps = None
    assert len(fit(again, tmp_path)) == 2
    tiny.assert_same_weights(again, whole)
