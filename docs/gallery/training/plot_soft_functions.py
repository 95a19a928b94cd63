"""
What makes bins and thresholds soft
===================================

SB-ECE replaces the bins of the calibration error, and S-AvUC the threshold
between certain and uncertain, by smooth functions with a temperature. These are
figures 3 and 4 of the paper.
"""

import keras
import matplotlib.pyplot as plt
import numpy as np
from scipy import special

from caltrain_tf.losses.soft_bins import soft_membership

# %%
# Soft bins
# ---------
#
# A confidence belongs to all bins, most to those whose centres are near. As the
# temperature tends to 0, the bins become hard.

confidence = np.linspace(0, 1, 500, dtype="float32")
figure, axes = plt.subplots(1, 3, figsize=(9, 2.6), sharey=True)
for ax, temperature in zip(axes, (0.1, 0.01, 0.001), strict=True):
    membership = soft_membership(confidence, 5, temperature)
    ax.plot(confidence, keras.ops.convert_to_numpy(membership))
    ax.set(title=f"T = {temperature}", xlabel="Confidence")
axes[0].set_ylabel("Membership in each of 5 bins")
figure.tight_layout()

# %%
# Soft uncertainty
# ----------------
#
# The uncertainty of a prediction is a function of its entropy, as a share of
# the largest entropy: 1/2 at the threshold, and steeper there the lower the
# temperature.

entropy = np.linspace(0.001, 0.999, 500)
figure, axes = plt.subplots(1, 3, figsize=(9, 2.6), sharey=True)
for ax, threshold in zip(axes, (0.25, 0.5, 0.75), strict=True):
    log_odds = special.logit(entropy) - special.logit(threshold)
    for temperature in (1.0, 0.3, 0.1, 0.01):
        uncertainty = special.expit(log_odds / temperature)
        ax.plot(entropy, uncertainty, label=f"T = {temperature}")
    ax.set(title=f"Threshold {threshold}", xlabel="Normalised entropy")
axes[0].set_ylabel("Soft uncertainty")
axes[-1].legend(fontsize=8)
figure.tight_layout()
