import os

import numpy as np
import pytest
import tensorflow as tf

from caltrain_tf.training.checkpoints import Checkpoints
from caltrain_tf.training.checkpoints import Position
from caltrain_tf.training.checkpoints import restore_model
from tests.training import tiny


class _Run:
    def __init__(self, folder, **options):
        self.value = tf.Variable(np.zeros(50, "float32"))
        self.position = Position()
        objects = {"value": self.value, "position": self.position}
        self.checkpoints = Checkpoints(folder, objects, **options)

    def save(self, step):
        self.value.assign(tf.fill([50], float(step)))
        self.position.step = step
        self.checkpoints.save(step)


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
    assert again.value.numpy()[0] == 10
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
    np.testing.assert_array_equal(again.value, np.ones(50))
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


def test_another_model_is_an_error_and_no_damage(tmp_path):
    _Run(tmp_path).save(1)
    objects = {"value": tf.Variable(0.0), "other": tf.Variable(1.0)}
    with pytest.raises(ValueError, match="of another model"):
        Checkpoints(tmp_path, objects).restore()
    objects = {"more": tf.Variable(tf.zeros(50))}
    with pytest.raises(ValueError, match="of another model"):
        Checkpoints(tmp_path, objects).restore()


def test_others_than_the_chief_write_elsewhere(tmp_path):
    run = _Run(tmp_path, chief=False)
    run.save(1)
    run.checkpoints.save_best(1)
    assert os.listdir(tmp_path) == []
    elsewhere = run.checkpoints._thrown_away
    assert _indices(elsewhere) == ["ckpt-1.index"]
    run.checkpoints.close()
    assert not os.path.exists(elsewhere)


def test_position_is_json():
    position = Position()
    position.add("train", {"loss": 0.1})
    position.add("train", {"loss": 0.2})
    position.best = 1 / 3
    copy = Position()
    copy.deserialize(position.serialize())
    assert copy.sums == {"train": {"loss": 0.1 + 0.2}}
    assert copy.best == 1 / 3
    copy.step_in_epoch = 4
    copy.end_epoch()
    assert (copy.epoch, copy.step_in_epoch, copy.sums) == (1, 0, {})


def test_restore_model_says_what_is_missing(tmp_path):
    with pytest.raises(ValueError, match="No checkpoint was found"):
        restore_model(tmp_path, tiny.network())
    with pytest.raises(ValueError, match="which='last'"):
        restore_model(tmp_path, tiny.network(), which="last")
