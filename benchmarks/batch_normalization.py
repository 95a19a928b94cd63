"""Compares training steps with our batch normalisation and with that of Keras.

    python benchmarks/batch_normalization.py [--model=NAME]

Both use the same network, batch and optimiser, without XLA, and are measured in
turns. The result is a ratio of CPU times; below 1, our layer is faster.
"""

import argparse
import statistics
import time

import keras
import tensorflow as tf

import caltrain_tf as ct
from caltrain_tf.layers import BatchNormalization

BATCH_SIZE = 64
STEPS = 10
ROUNDS = 7


def with_layers_of_keras(model):
    """Returns the same network with `keras.layers.BatchNormalization`."""

    def clone(layer):
        config = layer.get_config()
        if isinstance(layer, BatchNormalization):
            return keras.layers.BatchNormalization.from_config(config)
        return layer.__class__.from_config(config)

    other = keras.models.clone_model(model, clone_function=clone)
    other.set_weights(model.get_weights())
    return other


def make_step(model):
    """Returns a function that trains the network for one step."""
    images = tf.random.stateless_normal((BATCH_SIZE, 32, 32, 3), [0, 0])
    labels = tf.random.stateless_uniform([BATCH_SIZE], [0, 1], 0, 10, tf.int32)
    loss = ct.losses.CompositeLoss("focal", "sb_ece", from_logits=True)
    optimizer = keras.optimizers.SGD(0.01, momentum=0.9, nesterov=True)
    optimizer.build(model.trainable_variables)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            value = loss(labels, model(images, training=True))
        gradients = tape.gradient(value, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return value

    return step


def timed(step):
    """Returns the CPU seconds of all steps."""
    start = time.process_time()
    for _ in range(STEPS):
        step().numpy()
    return time.process_time() - start


def main():
    """Prints the ratio of times and the difference of the first losses."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="wrn-10-1")
    args = parser.parse_args()
    keras.utils.set_random_seed(0)
    ours = ct.models.get(args.model, num_classes=10, input_shape=(32, 32, 3))
    steps = [make_step(model) for model in (ours, with_layers_of_keras(ours))]
    gap = abs(steps[0]().numpy() / steps[1]().numpy() - 1)
    ratios = []
    for _ in range(ROUNDS):
        first, second = map(timed, steps)
        ratios.append(first / second)
    print(
        f"{args.model}, batch {BATCH_SIZE}: "
        f"{statistics.median(ratios):.2f} x Keras' layer "
        f"({min(ratios):.2f} to {max(ratios):.2f}); "
        f"the first losses differ by {gap:.0e}"
    )


if __name__ == "__main__":
    main()
