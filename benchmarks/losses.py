"""Measures the cost of the losses, as ratios of times in one run.

  python benchmarks/losses.py

Prints the time of each loss with its gradient as a multiple of cross-entropy
with its gradient (batch 512, compiled by XLA), each secondary loss's share of a
whole training step of WRN-16-4, and the seconds that the sorting losses take
for 1,000,000 examples. On a busy machine, CPU time is closer to the time on an
idle machine. Rounds are interleaved and the fastest round of each kind counts,
so that a busy machine affects all kinds alike.
"""

import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import caltrain_tf as ct  # noqa: E402

BATCH_SIZE = 512
STEP_BATCH_SIZE = 128
ROUNDS = 40
CALLS_A_ROUND = 10
STEP_ROUNDS = 3
MANY_EXAMPLES = 1_000_000


def batch(num_examples, num_classes):
    """Returns labels and logits, of which about half predict the label."""
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 3, (num_examples, num_classes)).astype("float32")
    labels = rng.integers(0, num_classes, num_examples)
    hit = rng.random(num_examples) < 0.5
    labels[hit] = logits.argmax(axis=1)[hit]
    return tf.constant(labels), tf.constant(logits)


def with_gradient(loss):
    """Returns the compiled function `(labels, logits) -> (value, gradient)`."""

    @tf.function(jit_compile=True)
    def value_and_gradient(labels, logits):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            value = loss(labels, logits)
        return value, tape.gradient(value, logits)

    return value_and_gradient


def fastest(functions, arguments, rounds, calls, clock=time.perf_counter):
    """Returns the seconds per call in the fastest round of each function."""
    seconds = dict.fromkeys(functions, float("inf"))
    for function in functions.values():
        function(*arguments)
    for _ in range(rounds):
        for name, function in functions.items():
            start = clock()
            for _ in range(calls):
                result = function(*arguments)
            tf.nest.map_structure(np.asarray, result)
            elapsed = (clock() - start) / calls
            seconds[name] = min(seconds[name], elapsed)
    return seconds


def all_losses():
    """Returns the cross-entropy of Keras and every loss of this package."""
    losses = {
        "keras cross-entropy": keras.losses.SparseCategoricalCrossentropy(
            from_logits=True
        )
    }
    for name in (*ct.losses.PRIMARY, *ct.losses.SECONDARY):
        losses[name] = ct.losses.get(name, from_logits=True)
    losses["sb_ece, bin"] = ct.losses.SBECE(binning="bin", from_logits=True)
    return {name: with_gradient(loss) for name, loss in losses.items()}


def training_step(num_classes=10):
    """Returns a compiled training step of WRN-16-4 with cross-entropy."""
    model = ct.models.wide_resnet(16, 4, num_classes=num_classes)
    loss = ct.losses.NLL(from_logits=True)
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    optimizer.build(model.trainable_variables)

    @tf.function(jit_compile=True)
    def step(images, labels):
        with tf.GradientTape() as tape:
            value = loss(labels, model(images, training=True))
        gradients = tape.gradient(value, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return value

    return step


def main():
    """Prints the three tables."""
    class_counts = (10, 100, 1000)
    columns = []
    for num_classes in class_counts:
        arguments = batch(BATCH_SIZE, num_classes)
        seconds = fastest(all_losses(), arguments, ROUNDS, CALLS_A_ROUND)
        unit = seconds["keras cross-entropy"]
        columns.append({name: s / unit for name, s in seconds.items()})
    print(f"Loss with gradient / cross-entropy with gradient, {BATCH_SIZE=}")
    print(f"{'loss':<22}" + "".join(f"{k:>8} cls" for k in class_counts))
    for name in columns[0]:
        cells = "".join(f"{column[name]:>12.2f}" for column in columns)
        print(f"{name:<22}{cells}")

    labels, logits = batch(STEP_BATCH_SIZE, 10)
    images = tf.random.normal((STEP_BATCH_SIZE, 32, 32, 3), seed=0)
    step = {"step": training_step()}
    step_seconds = fastest(step, (images, labels), STEP_ROUNDS, 1)["step"]
    losses = {
        name: function
        for name, function in all_losses().items()
        if name.split(",")[0] in ct.losses.SECONDARY
    }
    seconds = fastest(losses, (labels, logits), ROUNDS, CALLS_A_ROUND)
    print(
        f"\nShare of a WRN-16-4 training step, {STEP_BATCH_SIZE=}, 10 classes"
    )
    for name, value in seconds.items():
        share = value / (step_seconds + value)
        print(f"{name:<22}{share:>12.3%}")

    labels, logits = batch(MANY_EXAMPLES, 10)
    print(f"\nSeconds on the clock, and of the cores, {MANY_EXAMPLES=}")
    for name in ("mmce", "esd"):
        loss = ct.losses.get(name, from_logits=True)
        kinds = {
            "as a call": loss,
            "compiled": tf.function(loss, jit_compile=True),
            "compiled, gradient": with_gradient(loss),
        }
        for kind, function in kinds.items():
            arguments = ({kind: function}, (labels, logits), STEP_ROUNDS, 1)
            seconds = fastest(*arguments)[kind]
            of_cores = fastest(*arguments, clock=time.process_time)[kind]
            print(f"{name + ', ' + kind:<26}{seconds:>8.3f}{of_cores:>8.3f}")


if __name__ == "__main__":
    main()
