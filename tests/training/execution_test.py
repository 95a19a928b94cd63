import keras
import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from tests.training import tiny


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path):
    x, y = tiny.arrays()
    broken = x.copy()
    broken[37] = np.nan

    def data(epoch):
        rows = broken if epoch == 1 else x
        dataset = tf.data.Dataset.from_tensor_slices((rows, y))
        return dataset.batch(16, drop_remainder=True)

    # Without XLA, ReLU makes the NaN a 0, and it shows a step later.
    trained = tiny.trainer(l2=0.01, jit_compile=True)
    message = r"step 6: loss=nan, primary_loss=nan, .*l2_loss=0\.\d+"
    with pytest.raises(ct.training.NonFiniteLossError, match=message):
        trained.fit(data, 3, run=tmp_path, verbose=False)
    checkpoints = tf.train.latest_checkpoint(tmp_path / "checkpoints")
    assert checkpoints.endswith("ckpt-4")


def test_autograph_converts_the_loop_alone():
    seen = []

    class Watching(keras.losses.Loss):
        def call(self, y_true, y_pred):
            context = tf.__internal__.autograph.control_status_ctx()
            seen.append(context.status.name)
            return y_pred[:, 0]

    trained = tiny.trainer(loss=Watching())
    trained.fit(tiny.dataset(16), 1, verbose=False)
    trained.evaluate(tiny.dataset(16))
    assert len(seen) == 2 and set(seen) == {"DISABLED"}
