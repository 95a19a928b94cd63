"""The losses in Uncertainty Baselines, and its checkpoints."""

import importlib.util
import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import caltrain_tf as ct
from caltrain_tf.experiments import (
    build,
    prediction_files,
    shift,
    uncertainty_baselines,
)
from caltrain_tf.experiments.uncertainty_baselines import objective
from tests.experiments.configs import tiny, train


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


def test_losses_with_options():
    logits, labels = batch()
    loss = objective(
        ct.losses.Focal(gamma=1.0, from_logits=True),
        ct.losses.SBECE(num_bins=5, from_logits=True),
    )
    focal = ct.losses.focal(labels, logits, gamma=1.0, from_logits=True)
    sb_ece = ct.losses.sb_ece(labels, logits, num_bins=5, from_logits=True)
    expected = float(tf.reduce_mean(focal) + sb_ece)
    assert float(loss(labels, logits)) == pytest.approx(expected, rel=1e-6)


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


def write_checkpoint(network, prefix):
    """Writes weights in the layout of `tf.train.Checkpoint(model=...)`."""
    model = tf.Module()
    layers = [layer for layer in network.layers if layer.weights]
    for number, layer in enumerate(layers):
        module = tf.Module()
        for weight in layer.weights:
            setattr(module, weight.name, tf.Variable(weight.numpy()))
        setattr(model, f"layer_with_weights-{number}", module)
    optimizer = tf.Module()
    optimizer.iter = tf.Variable(7)
    return tf.train.Checkpoint(model=model, optimizer=optimizer).save(prefix)


# An untrained network says nothing about the labels.
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_checkpoint_is_evaluated_and_benchmarked(tmp_path):
    config = tiny()
    config.model = "wrn-10-1"
    config.epochs = 0
    keras.utils.set_random_seed(5)
    network = ct.models.get(config.model, num_classes=10)
    rng = np.random.default_rng(0)
    for layer in network.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            size = layer.gamma.shape[0]
            layer.set_weights([rng.uniform(0.5, 1.5, size) for _ in range(4)])
    config.init_from = write_checkpoint(network, str(tmp_path / "checkpoint"))
    run = str(tmp_path / "run")
    results = train(config, run)
    logits, labels = prediction_files.load(f"{run}/predictions/test.npz")
    data = ct.data.get("digits")
    (images, ids, _), *_ = data.eval_batches("test", 600)
    np.testing.assert_array_equal(labels, ids)
    expected = network.predict(images, verbose=0)
    np.testing.assert_allclose(logits, expected, atol=1e-4)
    assert results["accuracy"] == np.mean(logits.argmax(axis=1) == labels)
    # The checkpoint is not needed any more.
    for path in tmp_path.glob("checkpoint*"):
        path.unlink()
    _, data, model = shift.load_run(run)
    rows = shift.evaluate(model, data, corruptions=["fog"], severities=[1])
    accuracy = rows[(rows["metric"] == "accuracy") & (rows["severity"] == 0)]
    assert accuracy["value"].iloc[0] == results["accuracy"]


def test_other_checkpoints_are_errors(tmp_path):
    network = ct.models.get("wrn-10-1", num_classes=3)
    load = uncertainty_baselines.load_weights
    with pytest.raises(ValueError, match="--init_from=.*missing"):
        load(network, str(tmp_path / "missing"))
    other = ct.models.get("wrn-10-1", num_classes=4)
    path = write_checkpoint(other, str(tmp_path / "other"))
    with pytest.raises(
        ValueError, match=r"has the shape \[64, 4\] .*\[64, 3\]"
    ):
        load(network, path)
    deeper = ct.models.get("wrn-16-1", num_classes=3)
    path = write_checkpoint(deeper, str(tmp_path / "deeper"))
    with pytest.raises(ValueError, match="the shape .* instead of"):
        load(network, path)
    # As our own are, or those of another program.
    path = tf.train.Checkpoint(net=tf.Variable(1.0)).save(tmp_path / "own")
    before = network.get_weights()
    with pytest.raises(ValueError, match="the shape None instead of"):
        load(network, path)
    for one, weight in zip(before, network.get_weights(), strict=True):
        np.testing.assert_array_equal(one, weight)


def test_pixels_are_normalised_as_there():
    config = tiny()
    pixels = np.full((1, 32, 32, 3), 200, np.uint8)
    cifar10 = ct.data.SPECS["cifar10"]
    for name, init_from, mean, std in (
        ("imagenet", "checkpoint-9", 0, 1 / 255),
        ("cifar100", "checkpoint-9", cifar10.mean, cifar10.std),
        ("cifar100", "model.keras", *stats("cifar100")),
        ("digits", "checkpoint-9", *stats("digits")),
    ):
        data = ct.data.get("digits")
        data.name, (data.mean, data.std) = name, stats(name)
        config.init_from = init_from
        layer = build.model(config, data).layers[1]
        expected = (pixels / 255 - mean) / np.array(std)
        np.testing.assert_allclose(layer(pixels), expected, rtol=1e-5)


def stats(name):
    spec = ct.data.SPECS[name]
    return spec.mean, spec.std
