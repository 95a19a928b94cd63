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
        epoch = falls * float(np.abs(outputs).mean())
        return {"mine": epoch, "rows": float(len(labels))}

    def fit(trainer, run):
        return trainer.fit(
            host_part,
            EPOCHS,
            evaluations={"calibration": evaluation},
            measures={"calibration": measure},
            best="calibration/mine",
            run=run,
            checkpoint_every_steps=1,
            verbose=False,
        )

    trainer = make_trainer(strategy)
    if len(sys.argv) > 2:
        kill_at(trainer, int(sys.argv[2]))
    rows = fit(trainer, path / "run")
    # After the end there is nothing to do, on no worker.
    done = make_trainer(strategy)
    done._run_steps = None
    assert fit(done, path / "run") == rows
    tiny.assert_same_weights(done, trainer)
    # A run that was not killed ends the same.
    whole = make_trainer(strategy)
    assert fit(whole, None) == rows
    tiny.assert_same_weights(whole, trainer)

    weights = tiny.weights(trainer)
    done.restore_best(path / "run")
    trainer.fit(own_shards(tiny.dataset(32)), 1, verbose=False)
    np.savez(
        path / f"worker{index}.npz",
        *weights,
        logits=trainer.predict(own_shards(evaluation)),
        sharded_kernel=tiny.weights(trainer)[0],
        loss=rows[-1]["train/loss"],
        mine=[row["calibration/mine"] for row in rows],
        best_kernel=tiny.weights(done)[0],
        accuracy=trainer.evaluate(evaluation)["accuracy"],
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


def own_shards(dataset):
    """The dataset, whose options leave sharding to TensorFlow."""
    options = tf.data.Options()
    policy = tf.data.experimental.AutoShardPolicy.DATA
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)


def make_trainer(strategy):
    return tiny.trainer(
        strategy,
        loss=tiny.composite("mmce"),
        l2=0.01,
        clip_norm=0.5,
        jit_compile=True,
        metrics=[keras.metrics.SparseCategoricalAccuracy("accuracy")],
    )


def kill_at(trainer, step):
    run_steps = trainer._run_steps

    def run_steps_or_die(phase, batches, count, first_step):
        if first_step == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return run_steps(phase, batches, count, first_step)

    trainer._run_steps = run_steps_or_die


if __name__ == "__main__":
    main()
