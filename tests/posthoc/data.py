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


def soft_binned_error(probs, labels, num_bins=15):
    """Equation 11 of the paper in the l2 norm, naively in float64."""
    confidence = probs.max(axis=1)[:, None]
    correct = (probs.argmax(axis=1) == labels)[:, None]
    centres = (np.arange(num_bins) + 0.5) / num_bins
    member = softmax(-((confidence - centres) ** 2) / 0.01)
    mass = np.maximum(member.sum(axis=0), 1e-5)
    accuracy = (member * correct).sum(axis=0) / mass
    gap = accuracy - (member * confidence).sum(axis=0) / mass
    return np.sqrt(np.sum(mass * gap**2) / len(probs))
