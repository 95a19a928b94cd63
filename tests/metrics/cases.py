"""Predictions to measure: calibrated, where definitions differ, and edges."""

import numpy as np

from caltrain_tf import metrics

# Functions of predictions and labels. Others are of sets of classes, or return
# results of their own kind and are tested in `decomposition_test.py`.
EXACT = {
    name: getattr(metrics, name)
    for name in metrics.__all__
    if name[0].islower()
    and name
    not in (
        *("bootstrap", "calibration_test", "coverage", "groupwise"),
        *("score_decomposition", "set_size"),
    )
}
NUMERIC = [
    metric for name, metric in EXACT.items() if not name.endswith("curve")
]


def sample(num_examples, num_classes, scale=1.5, temperature=1.0, seed=0):
    """Logits whose softmax at temperature 1 is the labels' distribution.

    A temperature below 1 makes the network over-confident.
    """
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(num_examples, num_classes)) * scale
    true = softmax(logits)
    threshold = generator.random((num_examples, 1))
    labels = (threshold > np.cumsum(true, axis=1)).sum(axis=1)
    labels = np.minimum(labels, num_classes - 1)
    return (logits / temperature).astype("float32"), labels


def softmax(logits):
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def probabilities(*args, **kwargs):
    logits, labels = sample(*args, **kwargs)
    return softmax(logits.astype("float64")).astype("float32"), labels


def tied(num_examples=500, seed=0):
    """Two classes, confidences in steps of 0.1, up to exactly 1."""
    generator = np.random.default_rng(seed)
    first = (generator.integers(0, 11, num_examples) / 10).astype("float32")
    probs = np.stack([first, 1 - first], axis=1)
    return probs, generator.integers(0, 2, num_examples)


CASES = {
    "calibrated_2": probabilities(600, 2),
    "calibrated_10": probabilities(800, 10),
    "calibrated_1000": probabilities(200, 1000, scale=3.0),
    "overconfident": probabilities(700, 10, scale=3.0, temperature=0.2),
    "saturated": probabilities(300, 3, scale=30.0, temperature=0.3),
    "tied": tied(),
    "two_examples": probabilities(2, 4),
    "one_example": probabilities(1, 3),
    "all_correct": (np.eye(4, dtype="float32"), np.arange(4)),
}
