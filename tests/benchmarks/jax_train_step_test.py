import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from tests.benchmarks import problem
from tests.benchmarks.tpu_compile_test import ROOT


def jax_steps(weights, images, labels, folder):
    np.savez(
        folder / "problem.npz",
        images=images,
        labels=labels,
        **{f"weight{i}": weight for i, weight in enumerate(weights)},
    )
    environment = {
        **os.environ,
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
    }
    files = [str(folder / "problem.npz"), str(folder / "solution.npz")]
    process = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.jax_steps", *files],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    solution = np.load(folder / "solution.npz")
    return solution["losses"], [
        solution[f"arr_{i}"] for i in range(len(weights))
    ]


def test_the_step_is_that_of_the_trainer(two_replicas, tmp_path):
    pytest.importorskip("jax", "0.7", reason="It has no `jax.shard_map`.")
    # Two devices, each with statistics of its own, one loss of both batches.
    images, labels = problem.batches()
    keras.utils.set_random_seed(0)
    with two_replicas.scope():
        model = problem.network()
        optimizer = keras.optimizers.SGD(**problem.SGD)
    start = model.get_weights()
    trainer = ct.training.Trainer(
        model,
        ct.CompositeLoss(**problem.LOSS, cross_replica=True),
        optimizer,
        two_replicas,
        jit_compile=False,
        steps_per_execution=1,
        **problem.L2,
    )
    data = tf.data.Dataset.from_tensor_slices((images, labels))
    losses = [
        epoch["train/loss"]
        for epoch in trainer.fit(
            lambda epoch: data.skip(epoch).take(1),
            epochs=len(images),
            dataset_steps=1,
            verbose=False,
        )
    ]
    jax_losses, weights = jax_steps(start, images, labels, tmp_path)
    np.testing.assert_allclose(jax_losses, losses, rtol=1e-4)
    for before, new, expected in zip(
        start, weights, model.get_weights(), strict=True
    ):
        change = np.abs(expected - before).max()
        assert change > 0
        np.testing.assert_allclose(new, expected, atol=1e-3 * change)
