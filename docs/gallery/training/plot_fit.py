"""
Train with soft objectives in ``fit``
=====================================

Cross-entropy makes a network over-confident, and focal loss makes it
under-confident. This page trains the same network three times on the same 2,000
examples: with cross-entropy (NLL), with focal loss, and with focal loss plus
the soft-binned calibration error (SB-ECE).
"""

import keras
import matplotlib.pyplot as plt
import numpy as np

import caltrain_tf as ct

# %%
# The data
# --------
#
# The data are ten overlapping clusters: no classifier can always be right.

rng = np.random.default_rng(0)
centres = rng.normal(size=(10, 20))


def draw(num_examples):
    """Returns examples around the centres of their classes."""
    labels = rng.integers(0, 10, num_examples)
    x = centres[labels] + 2 * rng.normal(size=(num_examples, 20))
    return x.astype("float32"), labels


x_train, y_train = draw(2000)
x_test, y_test = draw(5000)

# %%
# One network, three losses
# -------------------------
#
# ``CompositeLoss`` adds ``beta`` times the second loss to the first.


def train(loss):
    """Returns the network trained with `loss`, and its history."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.layers.Input((20,)),
            keras.layers.Dense(128, "relu"),
            keras.layers.Dense(128, "relu"),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(1e-3),
        loss=loss,
        metrics=[
            "accuracy",
            ct.metrics.ExpectedCalibrationError(from_logits=True),
        ],
        jit_compile=False,  # XLA would compile for longer than this trains.
    )
    history = model.fit(
        x_train,
        y_train,
        batch_size=128,
        epochs=12,
        validation_data=(x_test, y_test),
        validation_batch_size=1000,
        verbose=0,
    )
    return model, history.history


losses = {
    "NLL": ct.losses.NLL(from_logits=True),
    "focal": ct.losses.Focal(from_logits=True),
    "focal + SB-ECE": ct.CompositeLoss(
        "focal", "sb_ece", beta=1.0, from_logits=True
    ),
}
runs = {name: train(loss) for name, loss in losses.items()}

# %%
# Calibration and accuracy
# ------------------------
#
# The calibration error and the accuracy of the test set after each epoch:

figure, axes = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
for name, (_, history) in runs.items():
    axes[0].plot(100 * np.array(history["val_ece"]), label=name)
    axes[1].plot(100 * np.array(history["val_accuracy"]), label=name)
axes[0].set(xlabel="epoch", ylabel="ECE (%)", ylim=(0, None))
axes[1].set(xlabel="epoch", ylabel="accuracy (%)")
axes[1].legend()

# %%
# In the reliability diagrams, a bar below the dashed line shows over-confident
# predictions, which are right less often than their confidence says, and a bar
# above it shows under-confident predictions.

outputs = {
    name: model.predict(x_test, verbose=0) for name, (model, _) in runs.items()
}
ct.figures.reliability_diagrams(
    {name: (logits, y_test) for name, logits in outputs.items()},
    from_logits=True,
)

# %%
for name, logits in outputs.items():
    ece = ct.metrics.calibration_error(logits, y_test, from_logits=True)
    accuracy = ct.metrics.accuracy(logits, y_test, from_logits=True)
    print(f"{name:>15}: ECE {ece:.2%}, accuracy {accuracy:.2%}")

# %%
# With many more epochs the network memorises its training set. It is then
# calibrated on the training set and not on other data;
# :ref:`sphx_glr_auto_gallery_training_plot_interleaved.py` shows what to do.
