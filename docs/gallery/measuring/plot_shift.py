"""
Calibration under shift
=======================

A network and its temperature are fitted to clean images. How well are they
calibrated on noisy, blurred or foggy images? ``shift.evaluate`` measures this
on the corruptions of CIFAR-10-C and ImageNet-C, which it generates on the fly.
"""

import keras
import numpy as np
from sklearn.datasets import load_digits

import caltrain_tf as ct
from caltrain_tf.experiments import figures, shift, statistics

# %%
# Handwritten digits
# ------------------
#
# scikit-learn contains images of digits of 8 x 8 pixels. They are enlarged to
# 16 x 16 colour images, because the corruptions expect colour images.

digits = load_digits()
images = np.repeat(np.repeat(digits.images, 2, axis=1), 2, axis=2)
images = np.repeat((images * 255 / 16)[..., None], 3, axis=-1).astype("uint8")
order = np.random.default_rng(0).permutation(len(images))
images, labels = images[order], digits.target[order]
parts = {
    "train": slice(0, 800),
    "calibration": slice(800, 1200),
    "test": slice(1200, None),
}

keras.utils.set_random_seed(0)
model = keras.Sequential(
    [
        keras.layers.Input((16, 16, 3)),
        keras.layers.Conv2D(16, 3, 2, activation="relu"),
        keras.layers.Conv2D(32, 3, 2, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(10),
    ]
)
model.compile(
    keras.optimizers.Adam(3e-3),
    ct.CompositeLoss("focal", "sb_ece", beta=1.0, from_logits=True),
    jit_compile=False,
)
model.fit(
    images[parts["train"]] / np.float32(255),
    labels[parts["train"]],
    batch_size=128,
    epochs=12,
    verbose=0,
)

# %%
# Four corruptions, three severities
# ----------------------------------
#
# ``ArrayData`` holds your own images; ``ct.data.get("cifar10")`` returns those
# of CIFAR-10. TS and TS-SB-ECE are fitted to the clean calibration split, never
# to corrupted images.

data = ct.data.ArrayData(
    "digits",
    {
        split: (images[parts[split]], labels[parts[split]])
        for split in ("calibration", "test")
    },
)
rows = shift.evaluate(
    model,
    data,
    corruptions=["gaussian_noise", "defocus_blur", "fog", "contrast"],
    severities=[1, 3, 5],
)
print(shift.severity_table(rows))

# %%
figures.shift_lines(statistics.shift_by_calibrator(rows))

# %%
# Each corruption separately, the ECE without scaling in percent:

errors = rows.query("metric == 'ece' and calibrator == 'none' and severity > 0")
table = errors.pivot(index="corruption", columns="severity", values="value")
print((100 * table).round(1))

# %%
# The temperatures are fitted to clean images, not to noise or fog: the stronger
# the corruption, the less they help. Measure the shift that you expect before
# you trust a confidence.
