"""A few steps of training that two backends take."""

import keras
import numpy as np
from keras import layers

LOSS = {
    "primary": "nll",
    "secondary": "sb_ece",
    "beta": 2.0,
    "from_logits": True,
}
SGD = {"learning_rate": 0.05, "momentum": 0.9, "nesterov": True}
L2 = {"l2": 0.01, "l2_on": ("kernel", "bias")}


def network():
    return keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(8, 3, use_bias=False),
            layers.BatchNormalization(momentum=0.9),
            layers.ReLU(),
            layers.GlobalAveragePooling2D(),
            layers.Dense(4),
        ]
    )


def batches(steps=3, batch_size=16):
    rng = np.random.default_rng(0)
    images = rng.normal(size=(steps, batch_size, 8, 8, 3)).astype("float32")
    return images, rng.integers(0, 4, (steps, batch_size)).astype("int32")
