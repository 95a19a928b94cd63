"""Trains on other processes: `python -m tests.training.remote HOSTS PATH`.

This process is the coordinator, as that of a TPU with a name is: it holds no
data, and the hosts make the batches that they read.
"""

import os
import sys

import keras
import numpy as np
import tensorflow as tf

import caltrain_tf as ct
from tests.training import fake_tpu, tiny, worker


def main():
    addresses, path = sys.argv[1:]
    # The hosts are somewhere else, and no file of the run may land there.
    os.chdir(path)
    cluster = tf.train.ClusterSpec({"worker": addresses.split(",")})
    tf.config.experimental_connect_to_cluster(cluster)
    hosts = [
        f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in range(2)
    ]
    read(hosts[0])
    train(hosts[0])
    trace(hosts)


def read(device):
    """Images in memory are sent to a host once, not for every epoch."""
    strategy = tf.distribute.OneDeviceStrategy(device)
    data = ct.data.get("digits", dtype="uint8")
    build = data.train_input(64, seed=1)
    examples = data._load(data._parts["train"])
    copies = []
    for epoch in (2, 3):
        batches = strategy.distribute_datasets_from_function(
            lambda context, epoch=epoch: build(epoch, context, first_step=10)
        )
        expected = data.train_batches(64, seed=1, epoch=epoch, first_step=10)
        for batch, distributed in zip(expected, batches, strict=True):
            for column, values in zip(batch, distributed, strict=True):
                assert values.device == device
                np.testing.assert_array_equal(column, values)
        copies.append(examples._copies[device])
    assert copies[0] is copies[1]
    assert copies[0][0].device == device


def train(device):
    """Trains on one host, and goes on where it was."""
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


def trace(hosts):
    """Traces what a TPU with a core on each host would run."""
    tpu = fake_tpu.TPU({host: [host] for host in hosts})
    places = []

    def host_part(epoch, context):
        dataset = worker.host_part(epoch, context)
        places.append(dataset._variant_tensor.device)
        return dataset

    fake_tpu.check_programs(tpu, host_part)
    assert sorted(set(places)) == hosts, places
    fake_tpu.check_checkpoints(tpu, "tpu")
    assert os.path.exists("tpu/ckpt-7.index")


def make_trainer(strategy=None):
    metrics = [keras.metrics.SparseCategoricalAccuracy("accuracy")]
    return tiny.trainer(strategy, metrics=metrics)


if __name__ == "__main__":
    main()
