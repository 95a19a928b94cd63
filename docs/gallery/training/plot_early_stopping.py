"""
Stop by refinement, then calibrate
==================================

The validation loss has two parts: the calibration error, which a temperature
repairs after training, and the refinement error, which measures how badly the
network separates the classes and cannot be repaired. They are smallest at
different epochs. ``TemperatureScaledLoss`` adds the validation loss *after*
scaling by the best temperature to the logs of each epoch, so that
``EarlyStopping`` can monitor the refinement error.
"""

import keras
import matplotlib.pyplot as plt
import numpy as np

import caltrain_tf as ct

# %%
# Data and a network
# ------------------

rng = np.random.default_rng(0)
centres = rng.normal(size=(10, 20))


def draw(num_examples):
    """Returns examples around the centres of their classes."""
    labels = rng.integers(0, 10, num_examples)
    x = centres[labels] + 1.2 * rng.normal(size=(num_examples, 20))
    return x.astype("float32"), labels


x_train, y_train = draw(1000)
x_val, y_val = draw(2000)
x_test, y_test = draw(5000)

keras.utils.set_random_seed(0)
model = keras.Sequential(
    [
        keras.layers.Input((20,)),
        keras.layers.Dense(256, "relu"),
        keras.layers.Dense(256, "relu"),
        keras.layers.Dense(10),
    ]
)
model.compile(
    keras.optimizers.Adam(1e-3),
    ct.losses.NLL(from_logits=True),
    jit_compile=False,
)

# %%
# Monitor ``val_ts_nll``
# ----------------------
#
# The callback has to precede the callbacks that read the values it adds.

history = model.fit(
    x_train,
    y_train,
    batch_size=128,
    epochs=30,
    validation_data=(x_val, y_val),
    validation_batch_size=1000,
    callbacks=[
        ct.callbacks.TemperatureScaledLoss((x_val, y_val), batch_size=1000),
        keras.callbacks.EarlyStopping(
            "val_ts_nll", mode="min", patience=10, restore_best_weights=True
        ),
    ],
    verbose=0,
).history

figure, axes = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
for name in ("val_loss", "val_ts_nll"):
    axes[0].plot(history[name], label=name)
    axes[0].axvline(np.argmin(history[name]), color="grey", linestyle=":")
axes[0].set(xlabel="epoch", ylabel="NLL of the validation set")
axes[0].legend()
axes[1].plot(history["val_temperature"])
axes[1].set(xlabel="epoch", ylabel="val_temperature")
print(
    f"smallest val_loss in epoch {np.argmin(history['val_loss'])}, "
    f"smallest val_ts_nll in epoch {np.argmin(history['val_ts_nll'])}"
)

# %%
# Then calibrate
# --------------
#
# The weights of that epoch separate the classes best, but are not calibrated
# yet. Temperature scaling calibrates them.

scaler = ct.posthoc.TemperatureScaling().fit(
    model.predict(x_val, verbose=0), y_val
)
logits = model.predict(x_test, verbose=0)
for name, values in (
    ("before", logits),
    ("after TS", scaler.transform(logits)),
):
    nll = ct.metrics.negative_log_likelihood(values, y_test, from_logits=True)
    ece = ct.metrics.calibration_error(values, y_test, from_logits=True)
    print(f"{name:>8}: NLL {nll:.4f}, ECE {ece:.2%}")
