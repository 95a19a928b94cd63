"""Trials that cost nothing; as a program, a worker that takes some.

python -m tests.experiments.cheap_tuning OUTPUT_DIR
"""

import os
import sys
import time

import numpy as np

from caltrain_tf.experiments.tuning import tune
from tests.experiments.configs import load

SEARCH = {
    "threshold": (0.2, 0.5, 0.8),
    "temperature": (0.01, 0.1, 1.0),
    "beta": (0.3, 1.0, 3.0),
    "l2": (1e-4, 2e-4, 1e-3),
}


def make_config(secondary="s_avuc", **search):
    config = load("quickstart").lock()
    config.loss.primary = "focal"
    config.loss.secondary = secondary
    config.search = {**SEARCH, **search}
    return config


def measure(config, seed=0):
    """An accuracy and an ECE that depend on every parameter."""
    options = config.loss.options[config.loss.secondary]
    numbers = [config.loss.beta, config.optimizer.l2]
    numbers += [options.get(key) or 0 for key in ("threshold", "temperature")]
    entropy = [seed, *(round(1e6 * number) for number in numbers)]
    accuracy, ece = np.random.default_rng(entropy).random(2)
    return {"accuracy": 0.9 + 0.03 * accuracy, "ece": 0.1 * ece}


def work(folder):
    found = tune(
        make_config(), folder, _run, say=lambda line: None, poll_seconds=0.05
    )
    print(found.best, "of", *found.outcomes)


def _run(config, folder):
    start = time.time()
    time.sleep(0.4)
    # The clock is the same for all processes of a machine.
    print("ran", os.path.basename(folder), start, time.time(), flush=True)
    return measure(config)


if __name__ == "__main__":
    work(sys.argv[1])
