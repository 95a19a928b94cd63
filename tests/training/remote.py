"""Trains on another process: `python -m tests.training.remote PORT PATH`.

This process is the coordinator, as that of a TPU with a name is: it holds no
data, and the worker makes the batches that it reads.
"""

import os
import sys

import keras
import numpy as np
import tensorflow as tf

from tests.training import tiny, worker


def main():
    port, path = sys.argv[1:]
    # The worker is somewhere else, and no file of the run may land there.
    os.chdir(path)
    tf.config.experimental_connect_to_host(f"localhost:{port}")
    device = "/job:worker/replica:0/task:0/device:CPU:0"
    trainer = make_trainer(tf.distribute.OneDeviceStrategy(device))
    places = []

    def host_part(epoch, context):
        dataset = worker.host_part(epoch, context)
        places.append(dataset._variant_tensor.device)
        return dataset

    def evaluation(context):
        del context
        return tiny.dataset(21, 8, seed=1, drop_remainder=False)

    options = {"evaluations": {"test": evaluation}, "run": "run"}
    rows = trainer.fit(host_part, 2, **options, verbose=False)
    assert set(places) == {device}, places
    assert os.path.exists("run/checkpoints/ckpt-4.index")
    again = make_trainer(trainer.strategy)
    assert again.fit(host_part, 2, **options, verbose=False) == rows
    tiny.assert_same_weights(again, trainer)
    np.savez(
        "end.npz",
        *tiny.weights(trainer),
        logits=trainer.predict(evaluation),
        accuracy=rows[-1]["test/accuracy"],
    )


def make_trainer(strategy=None):
    metrics = [keras.metrics.SparseCategoricalAccuracy("accuracy")]
    return tiny.trainer(strategy, metrics=metrics)


if __name__ == "__main__":
    main()
