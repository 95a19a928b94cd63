"""Measures how long calibrators take, and how good they are.

    python benchmarks/calibrators.py [--tokens=1000000]
    python benchmarks/calibrators.py --outputs FILE.npz [FILE.npz ...]
        [--conformal_splits=200]

The first form prints the seconds of fits to generated logits: of temperature
scaling, also over batches of tokens of a large vocabulary, of the calibrators
that cross-validate a penalty, and of `ct.posthoc.compare`.

The second form compares all calibrators on the outputs of networks. A file
holds predictions `logits` or `probs`, (N, K), and `labels`, (N,), or several
such pairs with names like `test_logits` and `test_labels`, which are
concatenated. In each of two random splits, calibrators are fitted to one half
and applied to the other; the tables show means over both splits. If probmetrics
is installed, its SVS and SMS are included, and ours with its settings.
`--conformal_splits` adds the coverage and size of conformal sets of alpha =
0.1, as means over that many splits.
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
ALPHA = 0.1
SMALLEST_PROBABILITY = 1e-12
VOCABULARY, BATCH_TOKENS = 32_000, 256


def over_confident_logits(num_rows, num_classes, seed=0):
    """Returns logits and labels whose optimal temperature is about 1.6."""
    rng = np.random.default_rng(seed)
    logits = 2 * rng.standard_normal((num_rows, num_classes), dtype=np.float32)
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return 1.6 * logits, labels


def print_seconds(name, function, *data):
    """Prints the seconds of a call, and those of all cores together."""
    start, used = time.perf_counter(), time.process_time()
    function(*data)
    seconds, used = time.perf_counter() - start, time.process_time() - used
    print(f"{name:44} {seconds:8.2f} s {used:8.2f} s of all cores", flush=True)


def print_speed(num_tokens):
    """Prints the seconds of fits to generated logits."""
    for size in ((5_000, 10), (5_000, 100), (50_000, 1_000)):
        data = over_confident_logits(*size)
        for objective in ("nll", "sb_ece"):
            scaler = ct.posthoc.TemperatureScaling(objective)
            print_seconds(f"{objective} {size}", scaler.fit, *data)
        if size[1] > 100:
            continue
        for name, kind in ct.posthoc.CALIBRATORS.items():
            if "Temperature" not in name:
                print_seconds(f"{name} {size}", kind().fit, *data)
        if size[1] == 10:
            print_seconds(f"compare {size}", ct.posthoc.compare, *data)

    def batches():
        for seed in range(num_tokens // BATCH_TOKENS):
            yield over_confident_logits(BATCH_TOKENS, VOCABULARY, seed)

    scaler = ct.posthoc.TemperatureScaling()
    print_seconds(f"{num_tokens} tokens", scaler.fit, batches)


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
    """Returns NLL, ECE and Brier score, as means over splits."""
    rows = []
    for seed in range(NUM_SPLITS):
        fit, test = halves(len(labels), seed)
        calibrated = logits[test]
        if make is not None:
            calibrator = make().fit(logits[fit], labels[fit])
            calibrated = calibrator.transform(calibrated)
        rows.append(
            [
                metric(calibrated, labels[test], from_logits=True)
                for metric in (
                    ct.metrics.negative_log_likelihood,
                    ct.metrics.calibration_error,
                    ct.metrics.brier_score,
                )
            ]
        )
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
    print("\n| calibrator | NLL | ECE | Brier score |\n|---|---|---|---|")
    for name, make in makers.items():
        nll, ece, brier = measure(make, logits, labels)
        print(f"| {name} | {nll:.5f} | {ece:.2%} | {brier:.5f} |", flush=True)


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


def main():
    """Prints the seconds, or the tables of all files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--outputs", nargs="+", default=())
    parser.add_argument("--conformal_splits", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=2_048)
    args = parser.parse_args()
    if not args.outputs:
        print_speed(args.tokens)
    for path in args.outputs:
        logits, labels = read(path)
        print(
            f"\n{pathlib.Path(path).stem}, {logits.shape[1]} classes, ", end=""
        )
        print(f"{len(labels)} examples")
        print_calibrators(logits, labels)
        if args.conformal_splits > 0:
            print_sets(logits, labels, args.conformal_splits)


if __name__ == "__main__":
    main()
