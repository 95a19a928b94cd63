"""A few steps of training that two backends take."""

import numpy as np

import caltrain_tf as ct

LOSS = {
    "primary": "nll",
    "secondary": "sb_ece",
    "beta": 2.0,
    "from_logits": True,
}
SGD = {"learning_rate": 0.05, "momentum": 0.9, "nesterov": True}
L2 = {"l2": 0.01, "l2_on": ("kernel", "bias")}


def network():
    return ct.models.wide_resnet(10, 1, input_shape=(8, 8, 3), num_classes=4)


def batches(steps=3, batch_size=16):
    rng = np.random.default_rng(0)
    images = rng.normal(size=(steps, batch_size, 8, 8, 3)).astype("float32")
    return images, rng.integers(0, 4, (steps, batch_size)).astype("int32")
