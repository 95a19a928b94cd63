"""A run to be killed: `python -m tests.training.tiny_run PATH SAVES`.

Trains with all that has to survive a kill: momentum, dropout, the statistics of
BatchNormalization, metrics, interleaved phases, data shuffled by epoch.
"""

import os
import signal
import sys

import keras
import numpy as np
import tensorflow as tf

import caltrain_tf as ct
from tests.training import tiny

EPOCHS = 3


def run(path, prepare=lambda trainer: None):
    """Trains to the end, or to where `prepare` has something happen."""
    trainer = tiny.trainer(
        make_network=lambda: tiny.network(
            keras.layers.BatchNormalization(), dropout=0.3
        ),
        l2=0.01,
        metrics=[keras.metrics.SparseCategoricalAccuracy("accuracy")],
        steps_per_execution=3,
    )
    prepare(trainer)
    trainer.fit(
        tiny.shuffled,
        EPOCHS,
        held_out=tiny.dataset(32, seed=1),
        calibration_loss=ct.losses.SBECE(from_logits=True),
        evaluations={"calibration": tiny.dataset(20, 8, seed=2)},
        best="calibration/loss",
        run=path,
        config={"epochs": EPOCHS},
        checkpoint_every_steps=2,
        verbose=False,
    )
    variables = [*trainer.model.variables, *trainer.optimizer.variables]
    arrays = [variable.numpy() for variable in variables]
    np.savez(os.path.join(path, "end.npz"), *arrays)


def kill_in_save(saves):
    """Kills this process in a save, as if the disk had got half of it."""
    save = tf.train.CheckpointManager.save
    written = []

    def save_and_die(manager, checkpoint_number, options):
        def die(path):
            written.append(path)
            if len(written) == saves:
                with open(f"{path}.data-00000-of-00001", "r+b") as file:
                    file.truncate(100)
                os.kill(os.getpid(), signal.SIGKILL)

        options.experimental_write_callbacks.append(die)
        return save(manager, checkpoint_number, options=options)

    tf.train.CheckpointManager.save = save_and_die


if __name__ == "__main__":
    kill_in_save(int(sys.argv[2]))
    run(sys.argv[1])
