"""A run in a process of its own: `python -m tests.training.tiny_run PATH`.

Trains with all that has to survive a kill: momentum, dropout, the statistics of
BatchNormalization, metrics, interleaved phases, data shuffled by epoch.
"""

import argparse
import os
import signal

import keras
import numpy as np
import tensorflow as tf

import caltrain_tf as ct
from tests.training import tiny

EPOCHS = 4
STEPS_PER_EPOCH = 6


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("--kill_in_save", type=int, default=-1)
    parser.add_argument("--kill_in_epoch", type=int, default=-1)
    parser.add_argument("--term_at", type=int, default=-1)
    arguments = parser.parse_args()

    run(arguments.path, lambda trainer: interrupt(trainer, arguments))


def run(path, prepare=lambda trainer: None):
    """Trains to the end, or to where `prepare` has something happen."""
    trainer = make_trainer()
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
    np.savez(
        os.path.join(path, "end.npz"),
        *[variable.numpy() for variable in variables(trainer)],
    )


def make_trainer():
    def make_network():
        return tiny.network(keras.layers.BatchNormalization(), dropout=0.3)

    return tiny.trainer(
        make_network=make_network,
        l2=0.01,
        metrics=[keras.metrics.SparseCategoricalAccuracy("accuracy")],
        steps_per_execution=3,
    )


def variables(trainer):
    return [*trainer.model.variables, *trainer.optimizer.variables]


def interrupt(trainer, arguments):
    """Sends a signal to this very process, at a step or inside a save.

    Or between the log of an epoch and its checkpoint.
    """
    written = []
    append = ct.training.MetricsLog.append
    save = tf.train.CheckpointManager.save

    def save_and_die(manager, checkpoint_number, options):
        def die(path):
            written.append(path)
            if len(written) == arguments.kill_in_save:
                # As if the disk had got half of it.
                with open(f"{path}.data-00000-of-00001", "r+b") as file:
                    file.truncate(100)
                os.kill(os.getpid(), signal.SIGKILL)

        options.experimental_write_callbacks.append(die)
        return save(manager, checkpoint_number, options=options)

    tf.train.CheckpointManager.save = save_and_die

    def append_and_die(log, row):
        append(log, row)
        if row["epoch"] == arguments.kill_in_epoch:
            os.kill(os.getpid(), signal.SIGKILL)

    ct.training.MetricsLog.append = append_and_die

    run_steps = trainer._run_steps

    def run_steps_and_die(phase, batches, count, first_step):
        if 0 <= arguments.term_at <= first_step:
            os.kill(os.getpid(), signal.SIGTERM)
        return run_steps(phase, batches, count, first_step)

    trainer._run_steps = run_steps_and_die


if __name__ == "__main__":
    main()
