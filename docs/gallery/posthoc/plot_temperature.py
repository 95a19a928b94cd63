"""
Temperature scaling, three ways
===============================

Temperature scaling divides all logits by one number. This number depends on the
objective that is minimised on the calibration split: the negative
log-likelihood (TS), the soft-binned calibration error (TS-SB-ECE) or the
hard-binned calibration error (TS-HB-ECE).
"""

import matplotlib.pyplot as plt
import numpy as np

import caltrain_tf as ct

# %%
# An over-confident classifier
# ----------------------------
#
# Labels are drawn from the softmax of ``clean``. The classifier's logits are
# 1.8 times as large, and 2.4 times as large for the examples of which it is
# most certain: no single temperature is right for both.

rng = np.random.default_rng(0)


def draw(num_examples):
    """Returns logits that are too large, and labels."""
    clean = 2 * rng.normal(size=(num_examples, 10))
    labels = (clean + rng.gumbel(size=clean.shape)).argmax(axis=1)
    top_two = np.sort(clean, axis=1)[:, -2:]
    sure = top_two[:, 1] - top_two[:, 0] > 1
    return clean * np.where(sure, 2.4, 1.8)[:, None], labels


calibration_logits, calibration_labels = draw(5000)
test_logits, test_labels = draw(20_000)

# %%
# Three temperatures
# ------------------

scalers = {
    "TS": ct.posthoc.TemperatureScaling("nll"),
    "TS-SB-ECE": ct.posthoc.TemperatureScaling("sb_ece"),
    "TS-HB-ECE": ct.posthoc.TemperatureScaling("hb_ece"),
}
for scaler in scalers.values():
    scaler.fit(calibration_logits, calibration_labels)

print(f"{'':>10} temperature    ECE    NLL")
for name, scaler in {"none": None, **scalers}.items():
    logits = scaler.transform(test_logits) if scaler else test_logits
    ece = ct.metrics.calibration_error(logits, test_labels, from_logits=True)
    nll = ct.metrics.negative_log_likelihood(
        logits, test_labels, from_logits=True
    )
    temperature = scaler.temperature_ if scaler else 1
    print(f"{name:>10} {temperature:11.3f} {ece:6.2%} {nll:6.4f}")

# %%
# Each scaler is best by its own measure. The figure shows the NLL, the SB-ECE
# and the ECE on the calibration split as functions of the temperature:

temperatures = np.geomspace(1.2, 3.5, 25)
curves = {"TS": [], "TS-SB-ECE": [], "TS-HB-ECE": []}
for temperature in temperatures:
    scaled = calibration_logits / temperature
    curves["TS"].append(
        ct.metrics.negative_log_likelihood(
            scaled, calibration_labels, from_logits=True
        )
    )
    curves["TS-SB-ECE"].append(
        float(
            ct.losses.sb_ece(
                calibration_labels, scaled, binning="bin", from_logits=True
            )
        )
    )
    curves["TS-HB-ECE"].append(
        ct.metrics.calibration_error(
            scaled, calibration_labels, from_logits=True
        )
    )
figure, axes = plt.subplots(1, 3, figsize=(9, 3), layout="constrained")
for ax, (name, curve), what in zip(
    axes, curves.items(), ("NLL", "SB-ECE", "ECE"), strict=True
):
    ax.plot(temperatures, curve)
    ax.axvline(scalers[name].temperature_, color="C1", linestyle="--")
    ax.set(title=name, xlabel="temperature", ylabel=what)

# %%
# Reliability diagrams before and after scaling:

ct.figures.reliability_diagrams(
    {
        "none": (test_logits, test_labels),
        "TS": (scalers["TS"].transform(test_logits), test_labels),
        "TS-SB-ECE": (scalers["TS-SB-ECE"].transform(test_logits), test_labels),
    },
    from_logits=True,
)
