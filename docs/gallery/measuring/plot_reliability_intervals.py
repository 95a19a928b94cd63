"""
A reliability diagram with intervals
====================================

Two calibration errors of 2% and 3% may come from the same network, measured
twice. This page computes bootstrap intervals of calibration errors, and exact
intervals for the bins of a reliability diagram.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

import caltrain_tf as ct

# %%
# The classifier is slightly over-confident. It is measured on 1,000 and on
# 20,000 examples:

rng = np.random.default_rng(0)


def draw(num_examples):
    """Returns logits that are 1.2 times too large, and labels."""
    clean = 2 * rng.normal(size=(num_examples, 10))
    labels = (clean + rng.gumbel(size=clean.shape)).argmax(axis=1)
    return 1.2 * clean, labels


samples = {size: draw(size) for size in (1000, 20_000)}

# %%
# Intervals of metrics
# --------------------
#
# ``bootstrap`` takes any metric. The calibration error of few examples is too
# large on average; ``debias=True`` subtracts the error expected from noise
# alone.

for size, (logits, labels) in samples.items():
    for name, metric, options in (
        ("ECE", ct.metrics.calibration_error, {}),
        ("debiased ECE", ct.metrics.calibration_error, {"debias": True}),
        ("KS error", ct.metrics.ks_error, {}),
        ("SmoothECE", ct.metrics.smooth_calibration_error, {}),
    ):
        value, (low, high) = ct.metrics.bootstrap(
            metric,
            logits,
            labels,
            num_samples=100,
            from_logits=True,
            **options,
        )
        print(f"{size:6} {name:>13}: {value:6.2%} [{low:6.2%}, {high:6.2%}]")

# %%
# Intervals of bins
# -----------------
#
# The number of correct predictions in a bin is binomial. The bounds of its
# exact interval (Clopper and Pearson) are quantiles of the beta distribution:


def draw_curve(ax, logits, labels, num_bins=10):
    """Draws accuracy against confidence with 95% intervals."""
    curve = ct.metrics.reliability_curve(
        logits, labels, num_bins=num_bins, from_logits=True
    )
    hits = curve.accuracy * curve.count
    low = stats.beta.ppf(0.025, hits, curve.count - hits + 1)
    high = stats.beta.ppf(0.975, hits + 1, curve.count - hits)
    ax.plot([0, 1], [0, 1], "k--", linewidth=1)
    ax.errorbar(
        curve.confidence,
        curve.accuracy,
        yerr=[
            curve.accuracy - np.nan_to_num(low),
            np.nan_to_num(high, nan=1.0) - curve.accuracy,
        ],
        fmt="o",
        capsize=3,
    )
    ax.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1))


figure, axes = plt.subplots(1, 2, figsize=(8, 4), layout="constrained")
for ax, (size, (logits, labels)) in zip(axes, samples.items(), strict=True):
    draw_curve(ax, logits, labels)
    ax.set_title(f"{size:,} examples")

# %%
# With 1,000 examples, most intervals contain the diagonal or nearly do. With
# 20,000 examples, the network is clearly over-confident.
