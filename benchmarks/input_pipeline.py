"""Compares the CIFAR input pipeline with one that augments single images.

    python benchmarks/input_pipeline.py

Prints images per second. Both pipelines shuffle 45,000 random 32 x 32 images in
memory, pad them by 4, and crop, mirror and normalise them. The second one uses
the stateless functions of `tf.image` on single images, as Uncertainty Baselines
does. No data set is needed.
"""

import functools
import statistics
import time

import numpy as np
import tensorflow as tf

from caltrain_tf.data.datasets import Part
from caltrain_tf.data.pipeline import ImageData, InMemoryImages, normalize
from caltrain_tf.data.sources import SPECS

NUM_IMAGES = 45_000
BATCH_SIZES = (128, 512)
REPEATS = 3


def one_by_one(images, labels, batch_size, epoch):
    """Returns the batches of an epoch, with images augmented one by one."""
    spec = SPECS["cifar10"]

    def example(index, example):
        image, label = example
        seed = tf.stack([epoch, index])
        image = tf.image.resize_with_crop_or_pad(image, 40, 40)
        image = tf.image.stateless_random_crop(image, (32, 32, 3), seed)
        return tf.image.stateless_random_flip_left_right(image, seed), label

    def finish(images, labels):
        return normalize(images, spec.mean, spec.std), labels

    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    dataset = dataset.shuffle(NUM_IMAGES, seed=epoch).enumerate()
    dataset = dataset.map(example, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.batch(batch_size, drop_remainder=True)
    dataset = dataset.map(finish, num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.prefetch(tf.data.AUTOTUNE)


def images_per_second(make_epoch, batch_size):
    """Returns the median rate over epochs, including the time to build one."""
    rates = []
    for epoch in range(REPEATS):
        start = time.perf_counter()
        num_batches = sum(1 for _ in make_epoch(batch_size, epoch=epoch))
        seconds = time.perf_counter() - start
        rates.append(num_batches * batch_size / seconds)
    return statistics.median(rates)


def main():
    """Prints a row for each batch size."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (NUM_IMAGES, 32, 32, 3), dtype=np.uint8)
    labels = rng.integers(0, 10, NUM_IMAGES)
    spec = SPECS["cifar10"]
    examples = InMemoryImages(
        images, labels, max_shift=spec.max_shift, flip=spec.flip
    )
    data = ImageData(
        "cifar10",
        spec,
        lambda part: examples,
        {"train": Part("train", 0, NUM_IMAGES)},
    )
    single = functools.partial(one_by_one, images, labels)
    print(f"{'batch':>5} {'train_batches':>15} {'one by one':>12} {'ratio':>7}")
    for batch_size in BATCH_SIZES:
        ours = images_per_second(data.train_batches, batch_size)
        theirs = images_per_second(single, batch_size)
        print(
            f"{batch_size:>5} {ours:>13,.0f}/s {theirs:>10,.0f}/s "
            f"{ours / theirs:>6.1f}x"
        )


if __name__ == "__main__":
    main()
