"""Measures time and memory of the metrics, as ratios in one run.

    python benchmarks/metrics.py

The unit of time of exact metrics is one pass of NumPy's `max(axis=1)` over the
same array, which any top-label metric needs at least. The unit for updates of
streaming metrics is an update of Keras' accuracy; both are compiled by XLA. The
unit for metrics in `fit` is a step without any.
Timings are interleaved, so that a busy machine affects all of them, and the
fastest counts. Memory is the peak allocation of a call, relative to the input.
"""

import statistics
import time
import tracemalloc

import keras
import numpy as np
import tensorflow as tf
from sklearn.calibration import calibration_curve

from caltrain_tf import metrics


def random_predictions(num_examples, num_classes, seed=0):
    """Returns float32 probabilities and labels, approximately calibrated."""
    generator = np.random.default_rng(seed)
    probs = generator.standard_normal(
        (num_examples, num_classes), dtype=np.float32
    )
    probs *= 3
    np.exp(probs, out=probs)
    probs /= probs.sum(axis=1, keepdims=True)
    labels = generator.integers(num_classes, size=num_examples)
    right = generator.random(num_examples) < probs.max(axis=1)
    labels[right] = probs[right].argmax(axis=1)
    return probs, labels


def interleaved(functions, repeats):
    """Returns the fastest and median seconds of each function."""
    seconds = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            seconds[name].append(time.perf_counter() - start)
    return {
        name: (min(times), statistics.median(times))
        for name, times in seconds.items()
    }


def peak_memory(function):
    """Returns the peak allocation of a call in bytes, including arrays."""
    tracemalloc.start()
    function()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def measure(num_examples, num_classes, repeats):
    """Prints a table for an array of this size."""
    probs, labels = random_predictions(num_examples, num_classes)
    logits = np.log(probs)
    confidence = probs.max(axis=1).astype(np.float64)
    correct = probs.argmax(axis=1) == labels
    functions = {
        "max(axis=1)": lambda: probs.max(axis=1),
        "calibration_error": lambda: metrics.calibration_error(probs, labels),
        "calibration_error, equal width": lambda: metrics.calibration_error(
            probs, labels, binning="equal_width"
        ),
        "calibration_error of logits": lambda: metrics.calibration_error(
            logits, labels, from_logits=True
        ),
        "brier_score": lambda: metrics.brier_score(probs, labels),
        "negative_log_likelihood": lambda: metrics.negative_log_likelihood(
            probs, labels
        ),
        "ks_error": lambda: metrics.ks_error(probs, labels),
        "smooth_calibration_error": lambda: metrics.smooth_calibration_error(
            probs, labels
        ),
        # It does not compute confidences and correctness, which are given.
        "scikit-learn calibration_curve": lambda: calibration_curve(
            correct, confidence, n_bins=15, strategy="quantile"
        ),
        "marginal_calibration_error": lambda: (
            metrics.marginal_calibration_error(probs, labels)
        ),
    }
    times = interleaved(functions, repeats)
    unit = times["max(axis=1)"][0]
    print(f"\n{num_examples:,} x {num_classes:,} float32, {repeats} repeats")
    print(f"{'':34}{'ms':>9}{'median':>9}{'passes':>9}{'memory':>9}")
    for name, (fastest, median) in times.items():
        memory = peak_memory(functions[name]) / probs.nbytes
        print(
            f"{name:34}{fastest * 1e3:9.1f}{median * 1e3:9.1f}"
            f"{fastest / unit:9.2f}{memory:9.3f}"
        )


def measure_updates(num_classes, batch_size=128, repeats=40):
    """Prints the cost of an update of each streaming metric."""
    probs, labels = random_predictions(batch_size, num_classes)
    batch = tf.constant(labels), tf.constant(np.log(probs))
    streaming = {
        kind.__name__: kind(from_logits=True)
        for kind in (
            metrics.ExpectedCalibrationError,
            metrics.KSError,
            metrics.MarginalCalibrationError,
            metrics.SoftBinnedECE,
            metrics.BrierScore,
            metrics.NegativeLogLikelihood,
        )
    }
    streaming = {"accuracy": keras.metrics.SparseCategoricalAccuracy()} | (
        streaming
    )
    functions = {}
    for name, metric in streaming.items():
        metric.update_state(*batch)  # Creates the state.
        update = tf.function(
            metric.update_state, jit_compile=True, autograph=False
        )
        update(*batch)
        functions[name] = lambda update=update: [
            update(*batch) for _ in range(10)
        ]
    times = interleaved(functions, repeats)
    unit = times["accuracy"][0]
    print(f"\nupdate_state of {batch_size} x {num_classes:,} logits, XLA")
    print(f"{'':34}{'us':>9}{'median':>9}{'accuracy':>9}{'state kB':>9}")
    for name, (fastest, median) in times.items():
        state = sum(4 * np.prod(v.shape) for v in streaming[name].variables)
        print(
            f"{name:34}{fastest * 1e5:9.0f}{median * 1e5:9.0f}"
            f"{fastest / unit:9.2f}{state / 1e3:9.1f}"
        )


def measure_fit(batch_size=128, steps=100, repeats=15):
    """Prints what a metric adds to a step of `fit`.

    The network is so small that its step costs little but what Keras does in
    every step anyway.
    """
    generator = np.random.default_rng(0)
    x = generator.standard_normal((batch_size * steps, 32), dtype=np.float32)
    y = generator.integers(10, size=len(x))
    compiled = {
        "no metric": [],
        "accuracy": ["accuracy"],
        "ExpectedCalibrationError": [
            metrics.ExpectedCalibrationError(from_logits=True)
        ],
        "ExpectedCalibrationError, width": [
            metrics.ExpectedCalibrationError(
                from_logits=True, binning="equal_width"
            )
        ],
        "KSError": [metrics.KSError(from_logits=True)],
        "BrierScore": [metrics.BrierScore(from_logits=True)],
    }
    functions = {}
    for name, listed in compiled.items():
        keras.utils.set_random_seed(0)
        model = keras.Sequential(
            [
                keras.Input([32]),
                keras.layers.Dense(64, "relu"),
                keras.layers.Dense(10),
            ]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("sgd", loss, metrics=listed)
        functions[name] = lambda model=model: model.fit(
            x, y, batch_size=batch_size, verbose=0
        )
        functions[name]()
    times = interleaved(functions, repeats)
    unit = times["no metric"][0]
    print(f"\nfit of a network of two layers, {batch_size} examples a step")
    print(f"{'':34}{'us':>9}{'median':>9}{'no metric':>10}")
    for name, (fastest, median) in times.items():
        print(
            f"{name:34}{fastest / steps * 1e6:9.0f}{median / steps * 1e6:9.0f}"
            f"{fastest / unit:10.2f}"
        )


def measure_pixels(shape=(8, 512, 512, 21)):
    """Prints the memory of the calibration error of a segmentation."""
    generator = np.random.default_rng(0)
    logits = generator.standard_normal(shape, dtype=np.float32)
    labels = generator.integers(shape[-1], size=shape[:-1], dtype=np.int32)
    peak = peak_memory(
        lambda: metrics.calibration_error(logits, labels, from_logits=True)
    )
    print(f"\ncalibration_error of {shape} logits: input and peak together")
    print(f"are {1 + peak / logits.nbytes:.3f} times the input")


def main():
    """Runs the benchmark."""
    print("passes: multiples of one max(axis=1) over the same array")
    print("memory: peak allocation of a call / size of the predictions")
    measure(50_000, 1_000, repeats=9)
    measure(1_000_000, 10, repeats=7)
    measure(10_000, 10, repeats=30)
    measure_pixels()
    measure_updates(10)
    measure_updates(1_000)
    measure_fit()


if __name__ == "__main__":
    main()
