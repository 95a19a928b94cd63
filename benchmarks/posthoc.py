"""Measures the fits of calibrators.

    python benchmarks/posthoc.py
    python benchmarks/posthoc.py --tokens=1000000

Prints the seconds of temperature scaling, also over batches of tokens of a
large vocabulary, and of the calibrators that cross-validate a penalty.
"""

import argparse
import time

import numpy as np

import caltrain_tf as ct

VOCABULARY, BATCH_TOKENS = 32_000, 256


def over_confident_logits(num_rows, num_classes, seed=0):
    """Returns logits and labels whose optimal temperature is about 1.6."""
    rng = np.random.default_rng(seed)
    logits = 2 * rng.standard_normal((num_rows, num_classes), dtype=np.float32)
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return 1.6 * logits, labels


def report(name, calibrator, *data):
    """Prints the seconds of a fit."""
    start = time.perf_counter()
    calibrator.fit(*data)
    print(f"{name:40} {time.perf_counter() - start:8.2f} s", flush=True)


def main(num_tokens):
    """Prints all measurements."""
    for size in ((5_000, 10), (50_000, 1_000)):
        data = over_confident_logits(*size)
        for objective in ("nll", "sb_ece"):
            scaler = ct.posthoc.TemperatureScaling(objective)
            report(f"{objective} {size}", scaler, *data)
    for size in ((5_000, 10), (5_000, 100)):
        data = over_confident_logits(*size)
        for name, kind in ct.posthoc.CALIBRATORS.items():
            if "Temperature" not in name:
                report(f"{name} {size}", kind(), *data)

    def batches():
        for seed in range(num_tokens // BATCH_TOKENS):
            yield over_confident_logits(BATCH_TOKENS, VOCABULARY, seed)

    report("tokens", ct.posthoc.TemperatureScaling(), batches)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=2_048)
    main(parser.parse_args().tokens)
