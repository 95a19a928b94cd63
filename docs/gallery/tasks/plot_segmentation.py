"""
A segmentation model
====================

All leading axes of the predictions are examples, so that pixels need no
reshaping: the logits have the shape ``(batch, height, width, classes)`` and the
labels ``(batch, height, width)``. ``ignore_class`` leaves out pixels without a
label.
"""

import keras
import matplotlib.pyplot as plt
import numpy as np

import caltrain_tf as ct

# %%
# Images of discs
# ---------------
#
# The noisy images have three classes: background, dark disc and bright disc.
# Pixels near an edge have no label, as in many data sets: they are marked by
# 255.

rng = np.random.default_rng(0)
SIZE = 24
IGNORED = 255


def draw(num_images):
    """Returns noisy images and their labels."""
    rows, columns = np.mgrid[:SIZE, :SIZE]
    images = np.zeros((num_images, SIZE, SIZE))
    labels = np.zeros((num_images, SIZE, SIZE), "int32")
    for image, label in zip(images, labels, strict=True):
        for kind in (1, 2):
            centre = rng.uniform(6, SIZE - 6, 2)
            radius = rng.uniform(3, 6)
            distance = np.hypot(rows - centre[0], columns - centre[1])
            image[distance < radius] = (-1, 1)[kind - 1]
            label[distance < radius] = kind
            label[np.abs(distance - radius) < 0.5] = IGNORED
    images += rng.normal(0, 1.2, images.shape)
    return images[..., None].astype("float32"), labels


x_train, y_train = draw(64)
x_calibration, y_calibration = draw(64)
x_test, y_test = draw(64)

# %%
# Train
# -----
#
# A batch of 16 images has 9,216 pixels, which is enough for a calibration loss.

keras.utils.set_random_seed(0)
model = keras.Sequential(
    [
        keras.layers.Input((SIZE, SIZE, 1)),
        keras.layers.Conv2D(16, 5, padding="same", activation="relu"),
        keras.layers.Conv2D(16, 5, padding="same", activation="relu"),
        keras.layers.Conv2D(3, 1),
    ]
)
model.compile(
    keras.optimizers.Adam(3e-3),
    ct.CompositeLoss("nll", "sb_ece", from_logits=True, ignore_class=IGNORED),
    metrics=[
        ct.metrics.ExpectedCalibrationError(
            from_logits=True, ignore_class=IGNORED
        )
    ],
    jit_compile=False,
)
history = model.fit(x_train, y_train, batch_size=16, epochs=12, verbose=0)
print("training ECE of each epoch:", np.round(history.history["ece"], 4))

# %%
# Calibrate
# ---------
#
# ``fit`` takes the arrays as they are.

scaler = ct.posthoc.TemperatureScaling(ignore_class=IGNORED).fit(
    model.predict(x_calibration, verbose=0), y_calibration
)
logits = model.predict(x_test, verbose=0)
probs = scaler.predict_proba(logits)
print(scaler)
for name, metric in (
    ("ECE", ct.metrics.calibration_error),
    ("accuracy", ct.metrics.accuracy),
):
    before = metric(logits, y_test, from_logits=True, ignore_class=IGNORED)
    after = metric(probs, y_test, ignore_class=IGNORED)
    print(f"{name:>8}: {before:.2%}, after TS {after:.2%}")

# %%
# A map of the confidence shows where the network is uncertain: at the edges,
# and where noise hides a dark disc.

figure, axes = plt.subplots(1, 4, figsize=(10, 3), layout="constrained")
for ax, title, image in (
    (axes[0], "image", x_test[0, ..., 0]),
    (axes[1], "label", np.where(y_test[0] == IGNORED, np.nan, y_test[0])),
    (axes[2], "prediction", probs[0].argmax(axis=-1)),
    (axes[3], "confidence", probs[0].max(axis=-1)),
):
    picture = ax.imshow(image)
    ax.set_title(title)
    ax.axis("off")
figure.colorbar(picture, ax=axes[3])
