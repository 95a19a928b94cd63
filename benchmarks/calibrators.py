"""Compares all calibrators on the outputs of networks, in tables.

    python benchmarks/calibrators.py --outputs FILE.npz [FILE.npz ...]
        [--conformal_splits=200] [--compare]

A file holds predictions `logits` or `probs`, (N, K), and `labels`, (N,), or
several such pairs with names like `test_logits` and `test_labels`, which are
concatenated. In each of two random splits, calibrators are fitted to one half
and applied to the other; the tables show means over both splits, with the time
of the fastest of five fits. If probmetrics is installed, its SVS and SMS are
included, and ours with its settings.

`--conformal_splits` adds the coverage and size of conformal sets of alpha =
0.1, as means over that many splits. `--compare` adds the time that
`ct.posthoc.compare` takes for 5,000 examples.
"""

import argparse
import importlib.util
import pathlib
import time

import numpy as np
from scipy.special import softmax

import caltrain_tf as ct
from caltrain_tf.posthoc.compare import default_calibrators
from caltrain_tf.posthoc.conformal import METHODS

NUM_SPLITS = 2
NUM_FITS = 5
ALPHA = 0.1
SMALLEST_PROBABILITY = 1e-12
COMPARED = 5_000


class Probmetrics:
    """A calibrator of probmetrics that takes logits."""

    def __init__(self, name):
        """Looks up the calibrator by its name in probmetrics."""
        from probmetrics.calibrators import get_calibrator

        self.calibrator = get_calibrator(name)

    def fit(self, logits, labels):
        """Fits the calibrator to logits."""
        self.calibrator.fit(softmax(logits.astype(float), axis=1), labels)
        return self

    def transform(self, logits):
        """Returns the logarithms of calibrated probabilities."""
        probs = softmax(logits.astype(float), axis=1)
        probs = self.calibrator.predict_proba(probs)
        return np.log(np.maximum(probs, SMALLEST_PROBABILITY))


def read(path):
    """Returns the logits `(N, K)` and labels `(N,)` of a file."""
    with np.load(path) as arrays:
        arrays = dict(arrays)
    logits, labels = [], []
    for name, array in arrays.items():
        prefix, found, _ = name.rpartition("logits")
        if not found:
            prefix, found, _ = name.rpartition("probs")
        if not found or array.ndim != 2 or f"{prefix}labels" not in arrays:
            continue
        if found == "probs":
            array = np.log(np.maximum(array, SMALLEST_PROBABILITY))
        logits.append(array)
        labels.append(arrays[f"{prefix}labels"])
    if not logits:
        raise SystemExit(
            "--outputs must be files with arrays `logits` or `probs`, (N, K), "
            f"and `labels`. Received: {path} with {', '.join(arrays)}"
        )
    return np.concatenate(logits), np.concatenate(labels)


def halves(count, seed):
    """Returns two halves of the row numbers, in random order."""
    order = np.random.default_rng(seed).permutation(count)
    return order[: count // 2], order[count // 2 :]


def measure(make, logits, labels):
    """Returns NLL, ECE, Brier score and fit seconds, as means over splits."""
    rows = []
    for seed in range(NUM_SPLITS):
        fit, test = halves(len(labels), seed)
        calibrated, seconds = logits[test], 0.0
        if make is not None:
            times = []
            for _ in range(NUM_FITS):
                start = time.perf_counter()
                calibrator = make().fit(logits[fit], labels[fit])
                times.append(time.perf_counter() - start)
            seconds = min(times)
            calibrated = calibrator.transform(calibrated)
        scores = [
            metric(calibrated, labels[test], from_logits=True)
            for metric in (
                ct.metrics.negative_log_likelihood,
                ct.metrics.calibration_error,
                ct.metrics.brier_score,
            )
        ]
        rows.append([*scores, seconds])
    return np.mean(rows, axis=0)


def print_calibrators(logits, labels):
    """Prints a row for each calibrator."""
    calibrators = default_calibrators(logits.shape[1])
    makers = {"none": None}
    makers |= {name: lambda c=c: c for name, c in calibrators.items()}
    if importlib.util.find_spec("probmetrics"):
        # It neither centres nor chooses the strength of the penalty.
        fixed = {"strength": 1.0, "centred": False}
        for name, kind in (
            ("svs", ct.posthoc.StructuredVectorScaling),
            ("sms", ct.posthoc.StructuredMatrixScaling),
        ):
            makers[f"probmetrics {name}"] = lambda name=name: Probmetrics(name)
            makers[f"{name}, the same"] = lambda kind=kind: kind(**fixed)
    print("\n| calibrator | NLL | ECE | Brier score | seconds |")
    print("|---|---|---|---|---|")
    for name, make in makers.items():
        nll, ece, brier, seconds = measure(make, logits, labels)
        print(
            f"| {name} | {nll:.5f} | {ece:.2%} | {brier:.5f} | {seconds:.3f} |",
            flush=True,
        )


def print_sets(logits, labels, num_splits):
    """Prints a row for each kind of conformal set."""
    print(f"\n| sets, alpha = {ALPHA} | coverage | size |\n|---|---|---|")
    for method in METHODS:
        rows = []
        for seed in range(num_splits):
            fit, test = halves(len(labels), seed)
            conformal = ct.posthoc.ConformalSets(method, ALPHA, seed=seed)
            conformal.fit(logits[fit], labels[fit])
            sets = conformal.predict_set(logits[test])
            covered = ct.metrics.coverage(sets, labels[test])
            rows.append([covered, ct.metrics.set_size(sets)])
        covered, size = np.mean(rows, axis=0)
        print(f"| {method} | {covered:.2%} | {size:.3f} |", flush=True)


def print_compare(logits, labels):
    """Prints how long a comparison of all calibrators takes."""
    logits, labels = logits[:COMPARED], labels[:COMPARED]
    start, used = time.perf_counter(), time.process_time()
    ct.posthoc.compare(logits, labels)
    seconds, used = time.perf_counter() - start, time.process_time() - used
    print(
        f"\n`compare` of {len(labels)} x {logits.shape[1]}: {seconds:.1f} s, "
        f"{used:.1f} s of all cores together"
    )


def main():
    """Prints the tables of all files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--outputs", nargs="+", required=True)
    parser.add_argument("--conformal_splits", type=int, default=0)
    parser.add_argument("--compare", action="store_true")
    args = parser.parse_args()
    for path in args.outputs:
        logits, labels = read(path)
        print(
            f"\n{pathlib.Path(path).stem}, {logits.shape[1]} classes, ", end=""
        )
        print(f"{len(labels)} examples")
        print_calibrators(logits, labels)
        if args.conformal_splits > 0:
            print_sets(logits, labels, args.conformal_splits)
        if args.compare:
            print_compare(logits, labels)


if __name__ == "__main__":
    main()
