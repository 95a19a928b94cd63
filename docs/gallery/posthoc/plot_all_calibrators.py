"""
All calibrators compared
========================

Which calibrator is best, and is any of them better than doing nothing?
``ct.posthoc.compare`` fits each calibrator on folds of the calibration data,
measures it on the remaining fold, and tests which differences are significant.
"""

import pathlib
import tempfile

import keras
import matplotlib.pyplot as plt
import numpy as np

import caltrain_tf as ct

# %%
# A network to calibrate
# ----------------------
#
# Some classes are rarer and noisier than others, so that a single temperature
# cannot be right for all of them.

rng = np.random.default_rng(0)
NUM_CLASSES = 6
centres = 1.2 * rng.normal(size=(NUM_CLASSES, 16))
noise = np.linspace(0.8, 2.2, NUM_CLASSES)
shares = np.linspace(3, 1, NUM_CLASSES) / np.linspace(3, 1, NUM_CLASSES).sum()


def draw(num_examples):
    """Returns examples of classes that differ in number and noise."""
    labels = rng.choice(NUM_CLASSES, num_examples, p=shares)
    x = rng.normal(size=(num_examples, 16)) * noise[labels, None]
    return (centres[labels] + x).astype("float32"), labels


x_train, y_train = draw(600)
x_calibration, y_calibration = draw(3000)
x_test, y_test = draw(10_000)

keras.utils.set_random_seed(0)
model = keras.Sequential(
    [
        keras.layers.Input((16,)),
        keras.layers.Dense(128, "relu"),
        keras.layers.Dense(NUM_CLASSES),
    ]
)
model.compile(
    keras.optimizers.Adam(3e-3),
    ct.losses.NLL(from_logits=True),
    jit_compile=False,
)
model.fit(x_train, y_train, batch_size=64, epochs=40, verbose=0)
calibration_logits = model.predict(x_calibration, verbose=0)
test_logits = model.predict(x_test, verbose=0)

# %%
# Which calibrators are better than nothing?
# ------------------------------------------
#
# Without a list, all calibrators are compared. Each is measured on folds that
# it has not seen; a star marks calibrators that are better than doing nothing.

comparison = ct.posthoc.compare(
    calibration_logits, y_calibration, num_samples=100
)
print(comparison)

# %%
# On new data
# -----------
#
# The comparison uses the calibration split alone. On a test split the order is
# the same, up to chance:

calibrators = {
    name: calibrator() for name, calibrator in ct.posthoc.CALIBRATORS.items()
}
scores = {"none": test_logits}
for name, calibrator in calibrators.items():
    calibrator.fit(calibration_logits, y_calibration)
    scores[name] = calibrator.transform(test_logits)

figure, axes = plt.subplots(1, 3, figsize=(10, 3.5), layout="constrained")
for ax, title, metric in (
    (axes[0], "NLL", ct.metrics.negative_log_likelihood),
    (axes[1], "ECE", ct.metrics.calibration_error),
    (axes[2], "marginal ECE", ct.metrics.marginal_calibration_error),
):
    values = [
        metric(logits, y_test, from_logits=True) for logits in scores.values()
    ]
    ax.plot(values, list(scores), "o")
    ax.invert_yaxis()
    ax.set_title(title)
    if ax is not axes[0]:
        ax.set_yticks([])
# %%
# Keep one
# --------
#
# A fitted calibrator can be saved as a small JSON file, used as a Keras layer,
# or appended to a model.

chosen = calibrators["MatrixScaling"]
path = pathlib.Path(tempfile.mkdtemp()) / "matrix_scaling.json"
chosen.save(path)
print(ct.posthoc.load(path))
print(chosen.append_to(model).layers[-1])
