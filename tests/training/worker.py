"""One of several workers: `python -m tests.training.worker PATH`."""

import pathlib
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
    trainer = make_trainer(strategy)
    path = pathlib.Path(sys.argv[1])
    rows = trainer.fit(
        tiny.dataset(32), EPOCHS, run=path / "run", verbose=False
    )
    weights = tiny.weights(trainer)
    trainer.fit(own_shards(tiny.dataset(32)), 1, verbose=False)
    index = strategy.cluster_resolver.task_id
    evaluation = tiny.dataset(21, 8, seed=1, drop_remainder=False)
    np.savez(
        path / f"worker{index}.npz",
        *weights,
        logits=trainer.predict(own_shards(evaluation)),
        sharded_kernel=tiny.weights(trainer)[0],
        loss=rows[-1]["train/loss"],
        accuracy=trainer.evaluate(evaluation)["accuracy"],
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


if __name__ == "__main__":
    main()
