"""Synthetic logits whose miscalibration is known."""

import numpy as np


def calibrated(num_rows, num_classes, seed=0, scale=2.0):
    """Logits, and labels drawn from their softmax: temperature 1 is right."""
    generator = np.random.default_rng(seed)
    logits = scale * generator.normal(size=(num_rows, num_classes))
    noise = generator.gumbel(size=logits.shape)
    return logits, np.argmax(logits + noise, axis=1)


def mean_nll(logits, labels):
    """Naive, in float64."""
    logits = np.asarray(logits, np.float64)
    logits = logits - logits.max(axis=1, keepdims=True)
    of_label = logits[np.arange(len(labels)), labels]
    return np.mean(np.log(np.exp(logits).sum(axis=1)) - of_label)


def softmax(logits):
    """Naive, in float64."""
    logits = np.asarray(logits, np.float64)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)
