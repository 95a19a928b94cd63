"""Compares the steps of `Trainer` and of `model.fit`.

    python benchmarks/training_loop.py

Both use the same network, loss, data and compiler. The result is a ratio of
times; below 1, the trainer is faster.
"""

import statistics
import time

import keras
import numpy as np
import tensorflow as tf

import caltrain_tf as ct

STEPS = 40
ROUNDS = 15


def main():
    """Prints the ratios for each kind of network."""
    for name, make_network, shape in (
        ("dense", make_dense, [32]),
        ("convolutional", make_convolutional, [16, 16, 3]),
    ):
        data = make_data(shape)
        fit, train = (
            keras_loop(make_network(), data),
            trainer_loop(make_network(), data),
        )
        ratios, seconds = [], []
        for _ in range(ROUNDS):
            of_keras, of_trainer = timed(fit), timed(train)
            ratios.append(of_trainer / of_keras)
            seconds.append(of_trainer / STEPS)
        print(
            f"{name}: {1000 * min(seconds):.2f} ms a step, "
            f"{statistics.median(ratios):.2f} x model.fit "
            f"({min(ratios):.2f} to {max(ratios):.2f})"
        )


def make_data(shape):
    """Returns random batches in memory."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=[64 * STEPS, *shape]).astype("float32")
    y = generator.integers(10, size=64 * STEPS)
    data = tf.data.Dataset.from_tensor_slices((x, y))
    return data.batch(64, drop_remainder=True).prefetch(2)


def make_dense():
    """Returns a network whose steps take hardly any time."""
    return keras.Sequential(
        [
            keras.Input([32]),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def make_convolutional():
    """Returns a small convolutional network with batch normalisation."""
    layers = [keras.Input([16, 16, 3])]
    for filters in (16, 32, 32):
        layers += [
            keras.layers.Conv2D(filters, 3, padding="same", use_bias=False),
            keras.layers.BatchNormalization(),
            keras.layers.ReLU(),
        ]
    layers += [keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(10)]
    return keras.Sequential(layers)


def make_loss():
    """Returns an objective of the kind that the paper proposes."""
    return ct.CompositeLoss("nll", "sb_ece", from_logits=True)


def keras_loop(model, data):
    """Returns a function that runs an epoch of the compiled `model.fit`."""
    model.compile(
        keras.optimizers.SGD(0.01, momentum=0.9),
        make_loss(),
        jit_compile=True,
        steps_per_execution=10,
    )
    model.fit(data, verbose=0, shuffle=False)
    return lambda: model.fit(data, verbose=0, shuffle=False)


def trainer_loop(model, data):
    """Returns a function that runs an epoch of the compiled `Trainer.fit`."""
    trainer = ct.training.Trainer(
        model,
        make_loss(),
        keras.optimizers.SGD(0.01, momentum=0.9),
        steps_per_execution=10,
    )
    trainer.fit(data, 1, verbose=False)
    return lambda: trainer.fit(data, 1, verbose=False)


def timed(function):
    """Returns the seconds that a call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
