"""
How large a batch SB-ECE needs
==============================

A calibration error of few examples is never zero: the accuracy of a bin that
holds two examples is 0, 1/2 or 1, whatever the network says. A calibration loss
sees this noise as an error. Here are predictions that are calibrated *exactly*,
because their labels are drawn from them, and their calibration errors by the
size of the batch.
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
# The mean over 30 batches of what would be 0 with endless examples:

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
# The part of the label binning that does not go away is no noise: it also
# counts how far the confidences inside a bin are apart. The noise falls with
# the root of the batch size. With 512 examples, the paper's batch, it is small
# against the errors that there are to correct; with 32 it is not.
#
# Several replicas can share their examples: ``cross_replica=True`` computes the
# loss of the global batch, so that eight replicas of 64 have the noise of 512.
