"""
Binary and multi-label outputs
==============================

The same losses, metrics and calibrators work for a network with one output, or
with one sigmoid output per label. Predictions of shape ``(N, 1)`` are binary;
with ``multi_label=True``, predictions of shape ``(N, L)`` are L binary
problems.
"""

import keras
import numpy as np

import caltrain_tf as ct

# %%
# One output
# ----------
#
# The output is the logit of class 1. With ``focal`` and ``sb_ece``, the
# confidence is that of the predicted class, as it is with two outputs.

rng = np.random.default_rng(0)
weights = rng.normal(size=(20, 5)) / 3


def draw(num_examples):
    """Returns inputs and five labels of each, drawn from their odds."""
    x = rng.normal(size=(num_examples, 20)).astype("float32")
    odds = x @ weights
    return x, (odds + rng.logistic(size=odds.shape) > 0).astype("int32")


x_train, y_train = draw(500)
x_calibration, y_calibration = draw(2000)
x_test, y_test = draw(5000)


def train(num_outputs, labels, **options):
    """Returns a network with sigmoid outputs, as logits."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.layers.Input((20,)),
            keras.layers.Dense(128, "relu"),
            keras.layers.Dense(num_outputs),
        ]
    )
    model.compile(
        keras.optimizers.Adam(3e-3),
        ct.CompositeLoss("nll", "sb_ece", from_logits=True, **options),
        metrics=[
            ct.metrics.ExpectedCalibrationError(from_logits=True, **options)
        ],
        jit_compile=False,
    )
    model.fit(x_train, labels, batch_size=128, epochs=20, verbose=0)
    return model


model = train(1, y_train[:, :1])
scaler = ct.posthoc.TemperatureScaling().fit(
    model.predict(x_calibration, verbose=0), y_calibration[:, :1]
)
logits = model.predict(x_test, verbose=0)
print("shape of the logits:", logits.shape)
for name, values in (("none", logits), ("TS", scaler.transform(logits))):
    ece = ct.metrics.calibration_error(values, y_test[:, :1], from_logits=True)
    print(f"{name:>5}: ECE {ece:.2%}")

# %%
# ``predict_proba`` returns the probability of class 1 in the shape of the
# logits.

print(scaler.predict_proba(logits)[:3].round(3).tolist())

# %%
# Five labels
# -----------
#
# Pass ``multi_label=True`` to the loss, the metrics, the calibrator and the
# figure. The five problems are pooled: they share the bins and one temperature.

model = train(5, y_train, multi_label=True)
scaler = ct.posthoc.TemperatureScaling(multi_label=True).fit(
    model.predict(x_calibration, verbose=0), y_calibration
)
logits = model.predict(x_test, verbose=0)
print("shape of the logits:", logits.shape)
for name, values in (("none", logits), ("TS", scaler.transform(logits))):
    ece = ct.metrics.calibration_error(
        values, y_test, from_logits=True, multi_label=True
    )
    print(f"{name:>5}: ECE {ece:.2%}")

# %%
ct.figures.reliability_diagram(
    scaler.predict_proba(logits), y_test, multi_label=True, title="TS"
)
