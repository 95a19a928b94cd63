"""
Eight devices with JAX
======================

On Keras' JAX backend, `keras.distribution.DataParallel` splits each batch over
all devices: the chips of a TPU, GPUs, or the eight virtual CPU devices of this
script. JAX computes the step of the *global* batch, so a calibration loss sees
all of its examples, and eight devices end in the weights of one device. Run the
script in a process of its own::

  python docs/gallery/training/jax_data_parallel.py
"""

import os
import sys
import tempfile

os.environ["KERAS_BACKEND"] = "jax"
# On a machine with a TPU or GPUs, leave this out.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
# Nothing here needs TensorFlow.
sys.modules["tensorflow"] = None

import keras
import numpy as np

import caltrain_tf as ct

# %%
# Data and network
# ----------------

generator = np.random.default_rng(0)
centres = generator.normal(size=(5, 8))
y = generator.integers(0, 5, 640)
x = (centres[y] + generator.normal(size=(640, 8))).astype("float32")


def new_network():
    """Returns a network with the same initial weights each time."""
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [
            keras.Input([8]),
            keras.layers.Dense(16, "relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(5),
        ]
    )


# %%
# Two ways to train
# -----------------
#
# A composite loss in `fit`, with streaming metrics:


def composite():
    """Returns a network trained with focal loss + MMCE, and its logs."""
    model = new_network()
    loss = ct.CompositeLoss("focal", "mmce", from_logits=True)
    ece = ct.metrics.ExpectedCalibrationError(from_logits=True)
    model.compile("sgd", loss, metrics=[ece, *loss.part_metrics()])
    return model, model.fit(x, y, 64, 3, shuffle=False, verbose=0).history


# %%
# And interleaved training, which takes lists of batches, `PyDataset` or
# `tf.data`:


def interleaved():
    """Returns a network trained with focal loss and SB-ECE in turn."""
    network = new_network()
    model = ct.interleaved.InterleavedModel(
        network, ct.losses.SBECE(from_logits=True)
    )
    ece = ct.metrics.ExpectedCalibrationError(from_logits=True)
    model.compile("sgd", ct.losses.Focal(from_logits=True), metrics=[ece])
    train = [(x[i : i + 64], y[i : i + 64]) for i in range(0, 512, 64)]
    both = ct.interleaved.interleave(train, held_out=[(x[512:], y[512:])])
    return network, model.fit(both, epochs=3, shuffle=False, verbose=0).history


# %%
# One device and eight
# --------------------

ways = (composite, interleaved)
alone = [way() for way in ways]
keras.distribution.set_distribution(keras.distribution.DataParallel())
for way, (one, logs) in zip(ways, alone, strict=True):
    eight, other_logs = way()
    devices = len(eight.layers[0].kernel.value.sharding.device_set)
    pairs = zip(one.get_weights(), eight.get_weights(), strict=True)
    weights = max(np.abs(a - b).max() for a, b in pairs)
    ece = abs(logs["ece"][-1] - other_logs["ece"][-1])
    print(f"{way.__name__}: {devices} devices, {weights:.1e}, ECE {ece:.1e}")

# %%
# A calibrated model
# ------------------
#
# It is saved and loaded as on any backend.

scaler = ct.posthoc.TemperatureScaling("sb_ece")
scaler.fit(eight.predict(x, verbose=0), y)
calibrated = scaler.append_to(eight)
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "calibrated.keras")
    calibrated.save(path)
    loaded = keras.saving.load_model(path)
change = loaded.predict(x, verbose=0) - calibrated.predict(x, verbose=0)
print(f"saved and loaded: {np.abs(change).max():.1e}")
