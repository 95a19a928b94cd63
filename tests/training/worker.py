"""One of two workers: `python -m tests.training.worker PATH [KILL_AT]`."""

import os
import pathlib
import signal
import sys

import keras
import numpy as np
import tensorflow as tf

import caltrain_tf as ct
from tests.training import tiny

EPOCHS = 2


def main():
    # First of all: collectives between machines are set up at the start.
    strategy = ct.training.get_strategy(multi_worker=True)
    path = pathlib.Path(sys.argv[1])
    index = strategy.cluster_resolver.task_id
    evaluation = tiny.dataset(21, 8, seed=1, drop_remainder=False)

    def measure(outputs, labels):
        # As if the machines rounded in their own ways: alone, each worker
        # would find another epoch the best.
        falls = -1 if index == 0 else 3
        return {"mine": falls * float(np.abs(outputs).mean())}

    def fit(trainer):
        return trainer.fit(
            host_part,
            EPOCHS,
            evaluations={"calibration": evaluation},
            measures={"calibration": measure},
            best="calibration/mine",
            run=path / "run",
            checkpoint_every_steps=1,
            verbose=False,
        )

    trainer = make_trainer(strategy)
    if len(sys.argv) > 2:
        kill = lambda: os.kill(os.getpid(), signal.SIGKILL)  # noqa: E731
        tiny.at_step(trainer, int(sys.argv[2]), kill)
    rows = fit(trainer)
    # After the end there is nothing to do, on no worker.
    done = make_trainer(strategy)
    done._run_steps = None
    assert fit(done) == rows
    tiny.assert_same_weights(done, trainer)
    done.restore_best(path / "run")
    np.savez(
        path / f"worker{index}.npz",
        *tiny.weights(trainer),
        logits=trainer.predict(evaluation),
        loss=rows[-1]["train/loss"],
        mine=[row["calibration/mine"] for row in rows],
        best_kernel=tiny.weights(done)[0],
        accuracy=rows[-1]["calibration/accuracy"],
    )


def global_batches(epoch):
    """Batches in an order that is a function of the epoch alone."""
    x, y = tiny.arrays(32)
    order = np.random.default_rng(epoch).permutation(32)
    data = tf.data.Dataset.from_tensor_slices((x[order], y[order]))
    return data.batch(16, drop_remainder=True)


def host_part(epoch, context):
    """This host's rows of the global batches, for its only replica."""
    rows = 16 // context.num_input_pipelines
    first = context.input_pipeline_id * rows
    return global_batches(epoch).map(
        lambda x, y: (x[first : first + rows], y[first : first + rows])
    )


def make_trainer(strategy):
    return tiny.trainer(
        strategy,
        loss=tiny.composite("mmce"),
        l2=0.01,
        clip_norm=0.5,
        jit_compile=True,
        metrics=[keras.metrics.SparseCategoricalAccuracy("accuracy")],
    )


if __name__ == "__main__":
    main()
