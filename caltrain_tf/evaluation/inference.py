"""Running a network over batches, and over one corrupted set after another."""

import itertools

import numpy as np
import tensorflow as tf

from caltrain_tf.data.devices import is_processor_alone
from caltrain_tf.data.in_threads import in_threads


def compiled(model):
    """Returns a function from a batch of images to float32 logits.

    Args:
        model: A Keras model, which runs in inference mode, or a function.
    """

    @tf.function(reduce_retracing=True)
    def infer(images):
        if hasattr(model, "trainable_variables"):
            return tf.cast(model(images, training=False), tf.float32)
        return tf.cast(model(images), tf.float32)

    return infer


def outputs(infer, batches):
    """Returns an iterator over the logits of each batch and the rest of it.

    Where there is nothing but a processor, two batches run at once: while one
    waits for the slowest thread of an operation, the other has work. The memory
    of an accelerator is for one.

    Args:
        infer: Of `compiled`.
        batches: Of tuples, the images first.
    """

    def run(batch):
        images, *rest = batch
        return infer(images).numpy(), *(part.numpy() for part in rest)

    num_threads = 2 if is_processor_alone() else 1
    # One more, so that no thread waits for its input.
    return in_threads(run, batches, num_threads, ahead=1)


def predict(infer, batches, count=None):
    """Returns the logits and labels of examples whose weight is above 0.

    Args:
        infer: Of `compiled`.
        batches: Of (image, label, weight).
        count: How many are returned at most.
    """
    return _joined(outputs(infer, batches), count)


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
        batches = sets.walk(shifts, batch_size, num_batches)
    else:
        batches = itertools.chain.from_iterable(
            itertools.islice(sets.batches(*shift, batch_size), num_batches)
            for shift in shifts
        )
    # The network goes on with the next set while the caller has this one.
    results = outputs(infer, batches)
    for shift in shifts:
        yield shift, _joined(itertools.islice(results, num_batches), count)


def _joined(results, count):
    logits, labels, weights = map(np.concatenate, zip(*results, strict=True))
    kept = weights > 0
    return logits[kept][:count], labels[kept][:count]
