"""Ranks AutoCalibration among all calibrators on many small problems.

    python benchmarks/auto.py [--zoo=FOLDER] [--rows=FILE.csv] [--sets 0 27]

Trains eight classifiers on 27 data sets, those that scikit-learn ships and
generated ones with 2 to 20 classes. Each calibrator is fitted to the
classifier's probabilities on a calibration split of 45 to 1,500 examples. The
table shows, over all pairs, the mean rank by test NLL, the share of pairs in
which it is significantly worse than doing nothing (by more than two standard
errors of the paired difference), the share in which it is significantly better,
the mean NLL, and the seconds of a fit. If probmetrics is installed, its
calibrators are included. `--zoo` adds a table of networks: .npz files of
`calibration_logits`, `calibration_labels`, `test_logits` and `test_labels`.

It takes about ten minutes. `--rows` keeps the measurements in a file, from
which the same command goes on; `--sets` takes only some of the data sets.
"""

import argparse
import importlib.util
import pathlib
import sys
import time
import warnings

import keras
import numpy as np
import pandas as pd
from scipy.special import softmax
from sklearn import datasets
from sklearn.ensemble import (
    ExtraTreesClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

import caltrain_tf as ct
from caltrain_tf.posthoc.compare import default_calibrators

PROBMETRICS = ("ts-mix", "svs", "sms", "logistic", "logistic-mix", "isotonic")
# Training examples of a generated set; its test split has TEST.
TRAINING, TEST = 700, 4000
AUTO = "auto"
COLUMNS = ["pair", "calibrator", "nll", "errors", "seconds"]


def generated(make, count, **options):
    """A generated set with `count` calibration examples."""
    size = TRAINING + count + TEST
    return lambda: (*make(n_samples=size, random_state=0, **options), count)


def classification(num_classes, count, **options):
    """A set of `make_classification`."""
    options = {"class_sep": 1.0, "flip_y": 0.0, **options}
    return generated(
        datasets.make_classification,
        count,
        n_classes=num_classes,
        n_features=20,
        n_informative=12,
        **options,
    )


def shipped(load, target=lambda y: y):
    """A set of scikit-learn's, in three parts."""

    def read():
        x, y = load(return_X_y=True)
        return x, target(y), int(0.3 * len(y))

    return read


def hastie(n_samples, random_state):
    """Gaussian inputs, labelled by their length."""
    x, y = datasets.make_hastie_10_2(n_samples, random_state=random_state)
    return x, (y > 0).astype(int)


SETS = {
    "iris": shipped(datasets.load_iris),
    "wine": shipped(datasets.load_wine),
    "breast cancer": shipped(datasets.load_breast_cancer),
    "digits": shipped(datasets.load_digits),
    "digits, even": shipped(datasets.load_digits, lambda y: y % 2),
    "digits, eight": shipped(datasets.load_digits, lambda y: y == 8),
    "diabetes": shipped(datasets.load_diabetes, lambda y: y > 140),
    "moons": generated(datasets.make_moons, 300, noise=0.3),
    "circles": generated(datasets.make_circles, 1000, noise=0.2, factor=0.5),
    "hastie": generated(hastie, 500),
    "shells 3": generated(
        datasets.make_gaussian_quantiles, 300, n_features=4, n_classes=3
    ),
    "shells 5": generated(
        datasets.make_gaussian_quantiles, 1000, n_features=4, n_classes=5
    ),
    "blobs 4": generated(
        datasets.make_blobs, 150, centers=4, cluster_std=5.0, n_features=5
    ),
    "blobs 10": generated(
        datasets.make_blobs, 1500, centers=10, cluster_std=5.0, n_features=5
    ),
    "two": classification(2, 500),
    "two, few": classification(2, 100, class_sep=0.5),
    "two, noisy": classification(2, 1500, flip_y=0.1),
    "two, very noisy": classification(2, 300, flip_y=0.5),
    "two, 9:1": classification(2, 1000, weights=[0.9]),
    "two, 30:1": classification(2, 500, weights=[0.97]),
    "three": classification(3, 300),
    "three, noisy": classification(3, 1000, flip_y=0.2),
    "five": classification(5, 500),
    "five, imbalanced": classification(5, 1000, weights=[0.6, 0.2, 0.1, 0.05]),
    "ten": classification(10, 1000, class_sep=2.0),
    "ten, noisy": classification(10, 1500, class_sep=2.0, flip_y=0.1),
    "twenty": classification(20, 1500, class_sep=2.0),
}


class Network:
    """A small Keras network that is trained too long."""

    def fit(self, x, y):
        """Trains it for 40 epochs."""
        keras.utils.set_random_seed(0)
        self.model = keras.Sequential(
            [
                keras.layers.Dense(128, "relu"),
                keras.layers.Dense(128, "relu"),
                keras.layers.Dense(int(y.max()) + 1, "softmax"),
            ]
        )
        self.model.compile("adam", "sparse_categorical_crossentropy")
        self.model.fit(x, y, batch_size=32, epochs=40, verbose=0)
        return self

    def predict_proba(self, x):
        """Probabilities `(n, K)`."""
        return self.model.predict(x, batch_size=1000, verbose=0)


MODELS = {
    "logistic regression": lambda: LogisticRegression(max_iter=1000),
    "naive Bayes": GaussianNB,
    "random forest": lambda: RandomForestClassifier(100, random_state=0),
    "extra trees": lambda: ExtraTreesClassifier(
        100, min_samples_leaf=5, random_state=0
    ),
    "boosting": lambda: HistGradientBoostingClassifier(random_state=0),
    "neighbours": lambda: KNeighborsClassifier(10),
    "MLP": lambda: MLPClassifier((50,), max_iter=300, random_state=0),
    "Keras": Network,
}


def pairs(sets, finished=()):
    """Yields names, then probabilities and labels of both splits."""
    for name, read in list(SETS.items())[sets]:
        x, y, count = read()
        y = np.asarray(y, np.int64)
        training = TRAINING if len(y) >= TEST else len(y) - 2 * count
        rows = train_test_split(
            np.arange(len(y)), train_size=training, stratify=y, random_state=0
        )
        rest = train_test_split(
            rows[1], train_size=count, stratify=y[rows[1]], random_state=0
        )
        scaler = StandardScaler().fit(x[rows[0]])
        x = scaler.transform(x)
        for kind, make in MODELS.items():
            if f"{name}, {kind}" in finished:
                continue
            model = make().fit(x[rows[0]], y[rows[0]])
            yield (
                f"{name}, {kind}",
                *((model.predict_proba(x[part]), y[part]) for part in rest),
            )


def calibrators(num_classes):
    """All calibrators of probabilities, by name."""
    found = {
        name: each.set_params(from_probs=True)
        for name, each in default_calibrators(num_classes).items()
    }
    found[AUTO] = ct.posthoc.AutoCalibration(from_probs=True)
    if importlib.util.find_spec("probmetrics"):
        from probmetrics.calibrators import get_calibrator

        for name in PROBMETRICS:
            found[f"probmetrics {name}"] = get_calibrator(name)
    return found


def measure(name, calibration, test):
    """A row for each calibrator: NLL, and by how many errors it is worse."""
    probs, labels = test
    plain = losses(probs, labels)
    rows = [(name, "none", plain.mean(), 0.0, 0.0)]
    for kind, calibrator in calibrators(probs.shape[1]).items():
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            calibrator.fit(calibration[0].astype(float), calibration[1])
            calibrated = calibrator.predict_proba(probs.astype(float))
        seconds = time.perf_counter() - start
        each = losses(calibrated, labels)
        worse = each - plain
        error = worse.std(ddof=1) / np.sqrt(len(worse))
        # Doing nothing differs from itself by rounding.
        is_rounding = abs(worse.mean()) < 1e-9
        errors = 0.0 if is_rounding else worse.mean() / error
        rows.append((name, kind, each.mean(), errors, seconds))
    return rows


def losses(probs, labels):
    """-log p of each label, with the smallest p of our metrics."""
    of_label = probs[np.arange(len(labels)), labels]
    return -np.log(np.clip(of_label, 1e-7, 1.0))


def table(rows):
    """Means over the pairs, the best rank first."""
    frame = pd.DataFrame(rows, columns=COLUMNS)
    frame["rank"] = frame.groupby("pair")["nll"].rank()
    found = frame.groupby("calibrator").agg(
        rank=("rank", "mean"),
        worse=("errors", lambda e: 100 * (e > 2).mean()),
        better=("errors", lambda e: 100 * (e < -2).mean()),
        nll=("nll", "mean"),
        seconds=("seconds", "mean"),
    )
    found.columns = ["mean rank", "worse (%)", "better (%)", "NLL", "seconds"]
    return found.sort_values("mean rank").to_markdown(
        floatfmt=("", ".2f", ".1f", ".1f", ".4f", ".2f")
    )


def main():
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--zoo", type=pathlib.Path)
    parser.add_argument("--rows", type=pathlib.Path)
    parser.add_argument("--sets", nargs=2, type=int, default=(0, len(SETS)))
    arguments = parser.parse_args()
    rows = []
    if arguments.rows and arguments.rows.exists():
        rows = [tuple(row) for row in pd.read_csv(arguments.rows).to_numpy()]

    def add(name, *splits):
        if any(row[0] == name for row in rows):
            return
        rows.extend(measure(name, *splits))
        print(name, file=sys.stderr, flush=True)
        if arguments.rows:
            pd.DataFrame(rows, columns=COLUMNS).to_csv(
                arguments.rows, index=False
            )

    for pair in pairs(slice(*arguments.sets), {row[0] for row in rows}):
        add(*pair)
    files = sorted(arguments.zoo.glob("*.npz")) if arguments.zoo else []
    for path in files:
        with np.load(path) as arrays:
            splits = [
                (
                    softmax(arrays[f"{split}_logits"].astype(float), axis=1),
                    arrays[f"{split}_labels"],
                )
                for split in ("calibration", "test")
            ]
        add(path.stem, *splits)
    networks = {path.stem for path in files}
    for kind, is_network in (("pairs", False), ("networks", True)):
        chosen = [row for row in rows if (row[0] in networks) == is_network]
        if chosen:
            count = len({row[0] for row in chosen})
            print(f"{count} {kind}\n\n{table(chosen)}\n")


if __name__ == "__main__":
    main()
