"""Compares TS, TS-HB-ECE and TS-SB-ECE on few calibration examples.

    python benchmarks/small_samples.py --outputs=FOLDER

Draws 100, 300, 1,000 and 5,000 calibration examples of every network many
times, fits temperatures, and prints the mean and the largest test ECE (l2, 15
bins of equal mass) over draws in percent, and the mean test NLL. "SB-ECE alone"
is TS-SB-ECE with `likelihood_weight=0`, the plain optimum. It takes a few
minutes.

Each .npz file in FOLDER is a network; other files are ignored. It holds

- `calibration_logits`, `calibration_labels`, `test_logits`, `test_labels`; or
- `probs` and `labels`: calibration examples are drawn from the first half, and
  the second half is the test set; or
- `clean_logits`, `clean_labels`, `corrupted_logits` (corruptions, severities,
  examples, classes), `corrupted_labels` (examples): the same for the clean
  examples, and the mean ECE of the corrupted sets, which must not contain
  images of the first half.

Two under-confident classifiers of scikit-learn's digits are always included.
"""

import argparse
import pathlib
import warnings

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from caltrain_tf import metrics
from caltrain_tf.posthoc import TemperatureScaling

SIZES = (100, 300, 1000, 5000)
METHODS = {
    "TS": {},
    "TS-HB-ECE": {"objective": "hb_ece"},
    "SB-ECE alone": {"objective": "sb_ece", "likelihood_weight": 0},
    "TS-SB-ECE": {"objective": "sb_ece"},
}


def halves(logits, labels):
    """Returns the calibration pool and a list with the test set."""
    half = len(labels) // 2
    return (logits[:half], labels[:half]), [(logits[half:], labels[half:])]


def to_logits(probs):
    """Returns the logarithms of probabilities, which may be 0."""
    return np.log(np.maximum(probs, 1e-12))


def networks(folder):
    """Yields `(name, calibration, tests)`, with pairs of logits and labels."""
    for path in sorted(pathlib.Path(folder).glob("*.npz")):
        with np.load(path) as file:
            found = {name: file[name] for name in file.files}
        if "probs" in found:
            yield path.stem, *halves(to_logits(found["probs"]), found["labels"])
        elif "calibration_logits" in found:
            pairs = [
                (found[f"{split}_logits"], found[f"{split}_labels"])
                for split in ("calibration", "test")
            ]
            yield path.stem, pairs[0], pairs[1:]
        elif "corrupted_logits" in found:
            pool, tests = halves(found["clean_logits"], found["clean_labels"])
            yield path.stem, pool, tests
            corrupted = found["corrupted_logits"].astype(np.float32)
            sets = corrupted.reshape(-1, *corrupted.shape[2:])
            labels = found["corrupted_labels"]
            yield f"{path.stem}, corrupted", pool, [(x, labels) for x in sets]
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = images[order] / 16, labels[order]
    for name, classifier in (
        ("digits, logistic regression", LogisticRegression(C=0.02)),
        ("digits, random forest", RandomForestClassifier(random_state=0)),
    ):
        classifier.fit(images[:400], labels[:400])
        logits = to_logits(classifier.predict_proba(images[400:]))
        yield name, *halves(logits, labels[400:])


def measure(name, calibration, tests, num_examples, draws):
    """Yields a row for each draw and method."""
    logits, labels = calibration
    if num_examples == len(labels):
        draws = 1
    for draw in range(draws):
        generator = np.random.default_rng(draw)
        rows = generator.choice(len(labels), num_examples, replace=False)
        for method, options in METHODS.items():
            scaler = TemperatureScaling(**options)
            scaler.fit(logits[rows], labels[rows])
            probs = [scaler.predict_proba(each) for each, _ in tests]
            ece, nll = np.mean(
                [
                    (
                        100 * metrics.calibration_error(p, of_test),
                        metrics.negative_log_likelihood(p, of_test),
                    )
                    for p, (_, of_test) in zip(probs, tests, strict=True)
                ],
                axis=0,
            )
            yield {
                "examples": num_examples,
                "network": name,
                "method": method,
                "ECE": ece,
                "NLL": nll,
            }


def table(rows, value, statistic, digits):
    """Yields lines of a Markdown table; each size ends with a row of means."""
    cells = rows.pivot_table(
        value, ["examples", "network"], "method", statistic, sort=False
    )[list(METHODS)]
    yield f"| examples | network | {' | '.join(METHODS)} |"
    yield "|---" * (2 + len(METHODS)) + "|"
    for size, group in cells.groupby(level=0):
        lines = [*group.droplevel(0).iterrows(), ("mean", group.mean())]
        for name, values in lines:
            numbers = " | ".join(f"{value:.{digits}f}" for value in values)
            yield f"| {size:,} | {name} | {numbers} |"


def main():
    """Prints the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--outputs", required=True, help="folder of .npz files")
    parser.add_argument("--draws", type=int, default=20, help="of each size")
    arguments = parser.parse_args()
    if not pathlib.Path(arguments.outputs).is_dir():
        parser.error(f"--outputs must be a folder, not {arguments.outputs!r}")
    rows = []
    with warnings.catch_warnings():
        # Draws without a wrong prediction do not determine a temperature.
        warnings.simplefilter("ignore")
        for name, calibration, tests in networks(arguments.outputs):
            for size in SIZES:
                if size <= len(calibration[1]):
                    rows += measure(
                        name, calibration, tests, size, arguments.draws
                    )
    rows = pd.DataFrame(rows)
    for title, *columns in (
        ("Test ECE (%), mean over draws", "ECE", "mean", 2),
        ("Test ECE (%), largest of the draws", "ECE", "max", 2),
        ("Test NLL, mean over draws", "NLL", "mean", 3),
    ):
        print(f"\n{title}\n")
        print("\n".join(table(rows, *columns)))


if __name__ == "__main__":
    main()
