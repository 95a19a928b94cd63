"""Running a network over batches, and over one corrupted set after another."""

import itertools

import numpy as np
import tensorflow as tf


def compiled(model):
    """Returns a function from a batch of images to float32 logits.

    Where there is nothing but a processor, the two halves of a batch run at
    once, if the model is one of Keras that takes batches of any size: while one
    half waits for the slowest thread of an operation, the other has work.

    Args:
        model: A Keras model, which runs in inference mode, or a function.
    """
    devices = tf.config.list_logical_devices()
    in_halves = all(device.device_type == "CPU" for device in devices)
    input_shape = getattr(model, "input_shape", None)
    in_halves &= isinstance(input_shape, tuple) and input_shape[0] is None

    def run(images):
        if hasattr(model, "trainable_variables"):
            return tf.cast(model(images, training=False), tf.float32)
        return tf.cast(model(images), tf.float32)

    @tf.function(reduce_retracing=True)
    def infer(images):
        size = images.shape[0]
        if in_halves and size and size % 2 == 0:
            return tf.concat([*map(run, tf.split(images, 2))], axis=0)
        return run(images)

    return infer


def predict(infer, batches, count=None):
    """Returns the logits and labels of examples whose weight is above 0.

    Args:
        infer: Of `compiled`.
        batches: Of (image, label, weight).
        count: How many are returned at most.
    """
    logits, labels = [], []
    for images, y, weights in batches:
        kept = weights.numpy() > 0
        logits.append(infer(images).numpy()[kept])
        labels.append(y.numpy()[kept])
    return np.concatenate(logits)[:count], np.concatenate(labels)[:count]


def walk(infer, sets, shifts, batch_size, count):
    """Runs a network over corrupted sets, one after another.

    Args:
        infer: Of `compiled`.
        sets: As of `ct.data.shifted_sets`. Without `walk`, sets are opened one
            by one.
        shifts: Pairs of a corruption and a severity.
        batch_size: For inference.
        count: Only the first examples of each set.

    Yields:
        Each shift, and its predictions `(logits, labels)`.
    """
    num_batches = -(-count // batch_size)
    if not shifts:
        return
    if hasattr(sets, "walk"):
        batches = iter(sets.walk(shifts, batch_size, num_batches))
    for shift in shifts:
        if not hasattr(sets, "walk"):
            batches = iter(sets.batches(*shift, batch_size))
        few = itertools.islice(batches, num_batches)
        yield shift, predict(infer, few, count)
