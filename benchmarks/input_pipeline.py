"""Compares the input pipelines of CIFAR and ImageNet with plain `tf.data`.

    python benchmarks/input_pipeline.py [cifar] [imagenet]

Prints images per second and the medians of two ratios, of the same rounds: of
images per second and of images per CPU second, which other programs on the
machine change less. No data set is needed.

- CIFAR: 45,000 random images in memory are shuffled, padded to 36 pixels,
  cropped, mirrored and normalised. The other pipeline uses the stateless
  functions of `tf.image` on single images, as Uncertainty Baselines does.
- ImageNet: JPEG images of 500 x 375 pixels in record files are shuffled,
  decoded, cropped, resized and mirrored. The other pipeline is `interleave`,
  `shuffle(8192)` and the same decoding. Each of 64 files is read four times,
  as four files, so that an epoch is longer than the shuffle buffer.
"""

import argparse
import functools
import os
import tempfile
import time

import numpy as np
import tensorflow as tf

from caltrain_tf.data import datasets, imagenet, pipeline

NUM_IMAGES = {"cifar": 45_000, "imagenet": 16_384}
BATCH_SIZE = {"cifar": 512, "imagenet": 128}
NUM_FILES, REPEATS = 64, 4
ROUNDS = 5


def cifar(folder):
    """Returns ours and the other pipeline, as functions of the epoch."""
    size, batch_size = NUM_IMAGES["cifar"], BATCH_SIZE["cifar"]
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (size, 32, 32, 3), dtype=np.uint8)
    labels = rng.integers(0, 10, size)
    spec = datasets.SPECS["cifar10"]
    data = _data(
        "cifar10",
        pipeline.InMemoryImages(images, labels, spec.max_shift, spec.flip),
    )

    def example(index, example, epoch):
        image, label = example
        seed = tf.stack([epoch, index])
        image = tf.image.resize_with_crop_or_pad(image, 36, 36)
        image = tf.image.stateless_random_crop(image, (32, 32, 3), seed)
        image = tf.image.stateless_random_flip_left_right(image, seed)
        image = tf.cast(image, tf.float32) / 255
        return (image - spec.mean) / spec.std, label

    def one_by_one(epoch):
        dataset = tf.data.Dataset.from_tensor_slices((images, labels))
        dataset = dataset.shuffle(size, seed=epoch).enumerate()
        dataset = dataset.map(
            functools.partial(example, epoch=epoch),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
        dataset = dataset.batch(batch_size, drop_remainder=True)
        return dataset.prefetch(tf.data.AUTOTUNE)

    return functools.partial(_epoch, data, batch_size), one_by_one


def imagenet_records(folder):
    """Returns ours and the other pipeline, as functions of the epoch."""
    size, batch_size = NUM_IMAGES["imagenet"], BATCH_SIZE["imagenet"]
    files = _write_records(folder, size)

    def parse(record):
        return record, 0

    data = _data("imagenet", imagenet.JpegRecords(files, parse, 224), "uint8")

    def example(index, record):
        image = imagenet.random_crop(record, 224, tf.stack([index, index]))
        return image, 0

    def shuffle_buffer(epoch):
        paths = tf.data.Dataset.from_tensor_slices(
            [path for path, _, _ in files]
        )
        dataset = paths.shuffle(len(files), seed=epoch).interleave(
            tf.data.TFRecordDataset,
            cycle_length=16,
            block_length=16,
            num_parallel_calls=tf.data.AUTOTUNE,
        )
        dataset = dataset.shuffle(8192, seed=epoch).enumerate()
        dataset = dataset.map(example, num_parallel_calls=tf.data.AUTOTUNE)
        dataset = dataset.batch(batch_size, drop_remainder=True)
        return dataset.prefetch(tf.data.AUTOTUNE)

    return functools.partial(_epoch, data, batch_size), shuffle_buffer


def _data(name, examples, dtype="float32"):
    parts = {"train": datasets.Part("train", 0, examples.size)}
    spec = datasets.SPECS[name]
    return pipeline.ImageData(name, spec, lambda part: examples, parts, dtype)


def _epoch(data, batch_size, epoch):
    return data.train_batches(batch_size, epoch=epoch)


def _write_records(folder, size):
    """Writes smooth noise as JPEG of about 110 kB, as ImageNet's are."""
    rng = np.random.default_rng(0)
    encoded = []
    for _ in range(32):
        coarse = rng.integers(0, 256, (125, 94, 3)).astype("float32")
        image = tf.image.resize(coarse, (500, 375), "bicubic")
        image += rng.normal(0, 12, image.shape)
        image = tf.saturate_cast(image, tf.uint8)
        encoded.append(tf.io.encode_jpeg(image, quality=90).numpy())
    files = []
    for number in range(NUM_FILES):
        path = os.path.join(folder, f"{number}.tfrecord")
        take = size // (NUM_FILES * REPEATS)
        with tf.io.TFRecordWriter(path) as writer:
            for index in range(take):
                writer.write(encoded[(number + index) % len(encoded)])
        files.append((path, 0, take))
    return REPEATS * files


def images_per_second(make_epoch, epoch, batch_size):
    """Returns the rates of an epoch, by the clock and by CPU time."""
    clock, cpu = time.perf_counter(), time.process_time()
    num_images = batch_size * sum(1 for _ in make_epoch(epoch))
    clock, cpu = time.perf_counter() - clock, time.process_time() - cpu
    return np.array([num_images / clock, num_images / cpu])


def main():
    """Prints a row for each pipeline; both are measured in turns."""
    pipelines = {"cifar": cifar, "imagenet": imagenet_records}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="cifar, imagenet; all if none")
    names = parser.parse_args().names or list(pipelines)
    print(f"{'':<10} {'ours':>12} {'tf.data':>12} {'ratio':>7} {'CPU':>7}")
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            both = pipelines[name](folder)
            rates = [
                [images_per_second(f, epoch, BATCH_SIZE[name]) for f in both]
                for epoch in range(ROUNDS)
            ]
        ours, theirs = np.median(rates, axis=0)[:, 0]
        ratio, cpu = np.median([a / b for a, b in rates], axis=0)
        print(
            f"{name:<10} {ours:>10,.0f}/s {theirs:>10,.0f}/s {ratio:>6.2f}x "
            f"{cpu:>6.2f}x"
        )


if __name__ == "__main__":
    main()
