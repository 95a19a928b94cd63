"""Compares calibrators with scikit-learn, SciPy and single passes over data.

    python benchmarks/posthoc.py
    python benchmarks/posthoc.py --tokens=1000000

Prints ratios of times measured in one run, the agreement of the temperatures,
and the peak memory. It takes about two minutes, nearly all of them in
scikit-learn.
"""

import argparse
import time
import tracemalloc

import numpy as np
from scipy import optimize
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from caltrain_tf.inputs import map_blocks
from caltrain_tf.posthoc import (
    MatrixScaling,
    TemperatureScaling,
    data,
    regression,
)
from caltrain_tf.posthoc.structured import structured_penalty, tempered

SIZES = ((50_000, 1_000), (10_000, 10))
MATRIX_SIZE = (5_000, 100)
SOLVER_SIZES = ((5_000, 10), (5_000, 100))
VOCABULARY, BATCH_TOKENS = 32_000, 256
# A stream with at most so many batches is also fitted in memory, to compare.
MOST_BATCHES_IN_MEMORY = 16


class LogitsAreScores(ClassifierMixin, BaseEstimator):
    """A trained classifier whose inputs are its logits."""

    def fit(self, logits, labels):
        """Stores the classes."""
        self.classes_ = np.arange(logits.shape[1])
        return self

    def decision_function(self, logits):
        """Returns the logits."""
        return logits

    def predict(self, logits):
        """Returns the classes of the largest logits."""
        return np.argmax(logits, axis=1)


def over_confident_logits(num_rows, num_classes, seed=0):
    """Returns logits and labels whose optimal temperature is about 1.6."""
    generator = np.random.default_rng(seed)
    logits = generator.standard_normal(
        (num_rows, num_classes), dtype=np.float32
    )
    labels = generator.integers(num_classes, size=num_rows)
    evidence = generator.normal(4.0, 2.0, size=num_rows)
    logits[np.arange(num_rows), labels] += evidence.astype(np.float32)
    logits *= np.float32(3.0)
    return logits, labels


def fit_scikit_learn(logits, labels):
    """Returns the temperature of scikit-learn."""
    frozen = FrozenEstimator(LogitsAreScores().fit(logits, labels))
    scaler = CalibratedClassifierCV(frozen, method="temperature")
    scaler.fit(logits, labels)
    return 1.0 / float(scaler.calibrated_classifiers_[0].calibrators[0].beta_)


def fit_ours(logits, labels, objective="nll"):
    """Returns the temperature of this package."""
    return TemperatureScaling(objective).fit(logits, labels).temperature_


def softmax_pass(logits):
    """Computes exponentials and their sums, in blocks on all cores."""

    def block(start, stop):
        powers = logits[start:stop] - logits[start:stop].max(axis=1)[:, None]
        np.exp(powers, out=powers)
        return powers.sum(axis=1)

    map_blocks(block, len(logits), logits.itemsize * logits.shape[1])


def max_pass(logits):
    """Computes the largest logit of each row, in blocks on all cores."""
    map_blocks(
        lambda start, stop: logits[start:stop].max(axis=1),
        len(logits),
        logits.itemsize * logits.shape[1],
    )


def seconds(function, *arguments, repeats=5):
    """Returns the shortest time of several calls, and the last result."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = function(*arguments)
        times.append(time.perf_counter() - start)
    return min(times), result


def peak_memory(function, logits, *arguments):
    """Returns the peak memory of a call and its input, in input sizes."""
    tracemalloc.start()
    function(logits, *arguments)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return 1.0 + peak / logits.nbytes


def report(num_rows, num_classes):
    """Prints all comparisons for one size."""
    logits, labels = over_confident_logits(num_rows, num_classes)
    large = logits.size > 1e6
    ours, temperature = seconds(fit_ours, logits, labels)
    soft, _ = seconds(fit_ours, logits, labels, "sb_ece")
    softmax, _ = seconds(softmax_pass, logits)
    largest, _ = seconds(max_pass, logits)
    repeats = 1 if large else 5
    theirs, rough = seconds(fit_scikit_learn, logits, labels, repeats=repeats)
    # In float32, its line search is limited by the precision of the loss.
    exact = fit_scikit_learn(logits.astype(np.float64), labels)
    print(f"{num_rows:,} x {num_classes:,} float32 logits")
    print(f"  TS                       {ours * 1e3:9.1f} ms")
    print(f"    scikit-learn / TS      {theirs / ours:9.1f} x")
    print(f"    TS / softmax pass      {ours / softmax:9.1f} x")
    print(f"    TS / max pass          {ours / largest:9.1f} x")
    print(f"  TS-SB-ECE / TS           {soft / ours:9.1f} x")
    print(f"  temperature              {temperature:13.8f}")
    print(f"    to scikit-learn, float64 {abs(temperature - exact):9.1e}")
    print(f"    to scikit-learn, float32 {abs(temperature - rough):9.1e}")
    memory = peak_memory(fit_ours, logits, labels)
    print(f"  peak memory / input: TS  {memory:9.2f} x")
    memory = peak_memory(fit_ours, logits, labels, "sb_ece")
    print(f"             TS-SB-ECE     {memory:9.2f} x")


def report_matrix(num_rows, num_classes):
    """Prints the time of cross-validated matrix scaling and of a regression."""
    logits, labels = over_confident_logits(num_rows, num_classes)
    ours, _ = seconds(MatrixScaling().fit, logits, labels, repeats=3)
    regression = LogisticRegression(C=0.01, tol=1e-3, max_iter=1000)
    theirs, _ = seconds(regression.fit, logits, labels, repeats=1)
    print(f"MatrixScaling of {num_rows:,} x {num_classes:,}, 5 folds")
    print(f"  time                     {ours:9.2f} s")
    print(f"    scikit-learn's regression / it {theirs / ours:.1f} x")


def report_solver(num_rows, num_classes):
    """Prints the time of a fit by our L-BFGS and by SciPy's.

    Both minimise the objective of structured matrix scaling, in which the
    log-probabilities are badly conditioned.
    """
    logits, labels = over_confident_logits(num_rows, num_classes)
    rows = data.Rows(tempered(logits, 1 / 1.6, centred=False), labels)
    centre = np.eye(num_classes, num_classes + 1)
    strength = structured_penalty(centre, num_rows)
    count = 0

    def objective(parameters):
        nonlocal count
        count += 1
        change = parameters.reshape(centre.shape) - centre
        value, gradient = regression.value_and_gradient(rows, change + centre)
        value += np.sum(strength * change**2)
        return value, gradient + 2 * strength * change

    def ours():
        solve = regression.measure_curvature(rows, centre)(2 * strength)
        tolerance = regression.TOLERANCES[logits.dtype]
        return regression.minimise(objective, centre, solve, 100, tolerance)[0]

    def flat_objective(flat):
        value, gradient = objective(flat)
        return value, gradient.ravel()

    def scipy():
        return optimize.minimize(
            flat_objective,
            centre.ravel(),
            jac=True,
            method="L-BFGS-B",
            options={"ftol": 1e-7, "maxiter": 1000},
        ).x

    with regression.blas_threads(centre):
        times, counts, values = [], [], []
        for solver in (ours, scipy):
            count = 0
            shortest, found = seconds(solver, repeats=3)
            times.append(shortest)
            counts.append(count // 3)
            values.append(objective(found)[0])
    print(
        f"A fit of {num_rows:,} x {num_classes:,}, {centre.size:,} parameters"
    )
    print(f"  our L-BFGS               {times[0] * 1e3:9.1f} ms")
    print(f"    SciPy's L-BFGS-B / it  {times[1] / times[0]:9.1f} x")
    print(f"    evaluations            {counts[0]:9}")
    print(f"    SciPy's evaluations    {counts[1]:9}")
    print(f"    SciPy's objective - it {values[1] - values[0]:9.1e}")


class Tokens:
    """Batches of tokens that are generated again in every pass.

    The noise of a batch is a slice of one large buffer, so that generating the
    batches takes less time than reading them.
    """

    def __init__(self, num_tokens):
        self.num_batches = max(1, num_tokens // BATCH_TOKENS)
        generator = np.random.default_rng(0)
        self.size = BATCH_TOKENS * VOCABULARY
        self.noise = generator.standard_normal(
            self.size + 10 * VOCABULARY, dtype=np.float32
        )
        self.passes = 0

    def __iter__(self):
        """Yields logits and labels."""
        generator = np.random.default_rng(1)
        rows = np.arange(BATCH_TOKENS)
        for _ in range(self.num_batches):
            first = generator.integers(10 * VOCABULARY)
            logits = self.noise[first : first + self.size] * np.float32(3.0)
            logits = logits.reshape(BATCH_TOKENS, VOCABULARY)
            labels = generator.integers(VOCABULARY, size=BATCH_TOKENS)
            logits[rows, labels] += generator.normal(12.0, 6.0, BATCH_TOKENS)
            yield logits, labels
        self.passes += 1


def report_stream(num_tokens):
    """Prints the memory of a fit to a stream, in batches."""
    tokens = Tokens(num_tokens)
    tracemalloc.start()
    start = time.perf_counter()
    scaler = TemperatureScaling().fit(tokens)
    minutes = (time.perf_counter() - start) / 60
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    shape = f"{tokens.num_batches:,} x {BATCH_TOKENS} x {VOCABULARY:,}"
    print(f"Stream of {shape} logits, {minutes:.1f} minutes")
    print(f"  whole passes             {tokens.passes:9}")
    print(f"  peak memory / batch      {peak / (4 * tokens.size):9.2f} x")
    print(f"  temperature              {scaler.temperature_:13.8f}")
    if tokens.num_batches <= MOST_BATCHES_IN_MEMORY:
        parts = zip(*tokens, strict=True)
        whole = TemperatureScaling().fit(*map(np.concatenate, parts))
        difference = abs(scaler.temperature_ / whole.temperature_ - 1)
        print(f"  to the fit in memory     {difference:9.1e}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--tokens", type=int, default=2_048, help="Length of the stream."
    )
    report_stream(parser.parse_args().tokens)
    report_matrix(*MATRIX_SIZE)
    for size in SOLVER_SIZES:
        report_solver(*size)
    for size in SIZES:
        report(*size)
