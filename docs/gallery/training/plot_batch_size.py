"""
How large a batch SB-ECE needs
==============================

The calibration error of few examples is never zero: the accuracy of a bin that
holds two examples is 0, 1/2 or 1, whatever the network predicts. A calibration
loss treats this noise as an error. This page draws labels from the predictions,
so that the predictions are calibrated *exactly*, and computes their calibration
errors by batch size.
"""

import keras
import matplotlib.pyplot as plt
import numpy as np

import caltrain_tf as ct

# %%
# Calibrated predictions
# ----------------------

rng = np.random.default_rng(0)


def calibrated(num_examples, num_classes=10):
    """Returns probabilities, and labels drawn from them."""
    logits = 3 * rng.normal(size=(num_examples, num_classes))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    probs = np.asarray(keras.ops.softmax(logits))
    return probs.astype("float32"), labels


# %%
# The bias of each loss
# ---------------------
#
# The mean over 30 batches of a loss that would be 0 with infinitely many
# examples:

SIZES = [32, 64, 128, 256, 512, 1024, 2048]
LOSSES = {
    "SB-ECE, label binning": ct.losses.SBECE(),
    "SB-ECE, bin binning": ct.losses.SBECE(binning="bin"),
    "MMCE": ct.losses.MMCE(),
}
means = {name: [] for name in LOSSES}
for size in SIZES:
    batches = [calibrated(size) for _ in range(30)]
    for name, loss in LOSSES.items():
        values = [float(loss(labels, probs)) for probs, labels in batches]
        means[name].append(np.mean(values))

print("batch", *(f"{name:>24}" for name in LOSSES))
for row, size in enumerate(SIZES):
    print(f"{size:5}", *(f"{means[name][row]:24.4f}" for name in LOSSES))

# %%
figure, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
for name, values in means.items():
    ax.plot(SIZES, values, "o-", label=name)
ax.set(
    xlabel="batch size",
    ylabel="loss of calibrated predictions",
    xscale="log",
    yscale="log",
)
ax.set_xticks(SIZES, SIZES)
ax.legend()

# %%
# With label binning, a part of the loss remains that is not noise: the spread
# of the confidences within a bin. The noise falls with the square root of the
# batch size. With 512 examples, the paper's batch size, it is small compared
# with the errors to be corrected; with 32 it is not.
#
# Several replicas can share their examples: ``cross_replica=True`` computes the
# loss of the global batch, so that eight replicas of 64 have the noise of 512.
