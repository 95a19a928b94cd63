"""The metrics as their definitions read, in float64 loops."""

import math

import numpy as np


def top(probs, labels):
    probs = np.asarray(probs, np.float64)
    predicted = [int(np.argmax(row)) for row in probs]
    confidence = [probs[i, k] for i, k in enumerate(predicted)]
    correct = [float(k == labels[i]) for i, k in enumerate(predicted)]
    return np.array(confidence), np.array(correct)


def equal_mass_edges(values, num_bins):
    n = len(values)
    ranks = np.linspace(0, n, num_bins, endpoint=False)
    ranks = [min(int(np.round(rank)), n - 1) for rank in ranks]
    return [sorted(values)[rank] for rank in ranks][1:]


def members(values, num_bins, binning):
    if binning == "equal_mass":
        edges = equal_mass_edges(values, num_bins)
    else:
        edges = [j / num_bins for j in range(1, num_bins)]
    bins = [[] for _ in range(num_bins)]
    for i, value in enumerate(values):
        bins[sum(value >= edge for edge in edges)].append(i)
    return bins


def binned(values, outcome, num_bins, norm, binning, estimator, debias=False):
    """sum_b w |conf - acc|^norm, or the largest difference."""
    terms, largest = 0.0, 0.0
    for rows in members(values, num_bins, binning):
        if not rows:
            continue
        accuracy = outcome[rows].mean()
        gap = abs(values[rows].mean() - accuracy)
        if estimator == "label":
            gaps = np.abs(values[rows] - accuracy)
            largest = max(largest, gaps.max())
            terms += np.sum(gaps ** (1 if norm == math.inf else norm))
            continue
        largest = max(largest, gap)
        if debias:
            if len(rows) > 1:
                bias = accuracy * (1 - accuracy) / (len(rows) - 1)
                terms += len(rows) * (gap**2 - bias)
        else:
            terms += len(rows) * gap ** (1 if norm == math.inf else norm)
    if norm == math.inf:
        return largest
    return max(terms / len(values), 0.0)


def calibration_error(
    probs, labels, num_bins, norm, binning, estimator="bin", debias=False
):
    confidence, correct = top(probs, labels)
    value = binned(
        confidence, correct, num_bins, norm, binning, estimator, debias
    )
    return value if norm == math.inf else value ** (1 / norm)


def marginal_calibration_error(probs, labels, num_bins, norm, binning):
    probs = np.asarray(probs, np.float64)
    values = [
        binned(
            probs[:, k],
            (labels == k).astype(float),
            num_bins,
            norm,
            binning,
            "bin",
        )
        for k in range(probs.shape[1])
    ]
    if norm == math.inf:
        return max(values)
    return np.mean(values) ** (1 / norm)


def mean_sweep(probs, labels, norm):
    confidence, correct = top(probs, labels)
    kept = 1
    for num_bins in range(2, len(confidence) + 1):
        rows = [r for r in members(confidence, num_bins, "equal_mass") if r]
        accuracy = [correct[r].mean() for r in rows]
        if sorted(accuracy) != accuracy:
            break
        kept = num_bins
    return calibration_error(probs, labels, kept, norm, "equal_mass")


def ks_error(probs, labels):
    confidence, correct = top(probs, labels)
    return max(
        abs(np.sum((confidence - correct)[confidence <= t])) / len(confidence)
        for t in confidence
    )


def mmce(probs, labels, width):
    confidence, correct = top(probs, labels)
    excess = confidence - correct
    kernel = np.exp(-np.abs(confidence[:, None] - confidence) / width)
    return math.sqrt(excess @ kernel @ excess) / len(excess)


def smoothed_error(probs, labels, bandwidth):
    """By direct sums of mirrored Gaussians and the trapezoidal rule."""
    confidence, correct = top(probs, labels)
    excess = (confidence - correct) / len(confidence)
    points = np.linspace(0, 1, 4001)
    density = np.zeros_like(points)
    for shift in range(-4, 5, 2):
        for image in (confidence + shift, shift - confidence):
            z = (points[:, None] - image) / bandwidth
            density += np.exp(-0.5 * z * z) @ excess
    area = np.trapezoid(np.abs(density), points)
    return area / (bandwidth * math.sqrt(math.tau))
