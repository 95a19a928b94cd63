"""The losses under the older Keras of Uncertainty Baselines."""

import importlib.util
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from caltrain_tf.experiments.uncertainty_baselines import objective


def batch():
    rng = np.random.default_rng(0)
    logits = tf.constant(2 * rng.normal(size=(64, 5)), tf.float32)
    return logits, tf.constant(rng.integers(0, 5, 64))


@pytest.mark.parametrize("secondary", ["sb_ece", "s_avuc", "mmce"])
def test_it_is_the_composite_loss(secondary):
    logits, labels = batch()
    composite = ct.CompositeLoss("focal", secondary, beta=0.7, from_logits=True)
    loss = objective("focal", secondary, beta=0.7)
    value = float(loss(labels, logits))
    assert value == pytest.approx(float(composite(labels, logits)), rel=1e-6)


def test_options_reach_their_part():
    logits, labels = batch()
    loss = objective("focal", "sb_ece", primary_gamma=1.0, secondary_num_bins=5)
    focal = ct.losses.focal(labels, logits, gamma=1.0, from_logits=True)
    sb_ece = ct.losses.sb_ece(labels, logits, num_bins=5, from_logits=True)
    expected = float(tf.reduce_mean(focal) + sb_ece)
    assert float(loss(labels, logits)) == pytest.approx(expected, rel=1e-6)
    with pytest.raises(ValueError, match="Received: gamma=1.0"):
        objective("focal", gamma=1.0)
    with pytest.raises(ValueError, match="secondary=None.*num_bins"):
        objective("focal", secondary_num_bins=5)
    with pytest.raises(ValueError, match="beta=-1"):
        objective("focal", "sb_ece", beta=-1)


def test_labels_may_be_one_hot():
    logits, labels = batch()
    loss = objective("focal", "sb_ece")
    one_hot = float(loss(tf.one_hot(labels, 5), logits))
    assert one_hot == pytest.approx(float(loss(labels, logits)), rel=1e-6)


def test_replicas_do_not_divide_it(two_replicas):
    logits, labels = batch()
    loss = objective("nll", "sb_ece")
    values = two_replicas.run(loss, args=(labels, logits))
    for value in two_replicas.experimental_local_results(values):
        assert float(value) == pytest.approx(
            float(loss(labels, logits)), rel=1e-6
        )


def test_a_network_of_keras_2_is_trained():
    keras_2 = pytest.importorskip(
        "tf_keras", reason="tf_keras, the older Keras, is not installed"
    )
    keras_2.utils.set_random_seed(0)
    images = tf.random.stateless_normal([64, 8], [0, 1])
    labels = tf.argmax(images[:, :3], axis=1)
    model = keras_2.Sequential(
        [keras_2.layers.Dense(32, activation="relu"), keras_2.layers.Dense(3)]
    )
    optimizer = keras_2.optimizers.SGD(0.1, momentum=0.9)
    loss = objective("nll", "sb_ece", beta=0.5)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            value = loss(labels, model(images, training=True))
        gradients = tape.gradient(value, model.trainable_variables)
        optimizer.apply_gradients(
            zip(gradients, model.trainable_variables, strict=True)
        )
        return value

    values = [float(step()) for _ in range(30)]
    assert np.isfinite(values).all() and values[-1] < values[0] / 3


@pytest.mark.skipif(
    importlib.util.find_spec("uncertainty_baselines") is None,
    reason="uncertainty_baselines is not installed",
)
def test_a_network_of_the_real_package_is_trained():
    worker = "tests.experiments.uncertainty_baselines_worker"
    done = subprocess.run(
        [sys.executable, "-m", worker],
        env={**os.environ, "TF_USE_LEGACY_KERAS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["keras"] == "tf_keras"
    losses = result["losses"]
    assert np.isfinite(losses).all() and losses[-1] < losses[0] / 2
