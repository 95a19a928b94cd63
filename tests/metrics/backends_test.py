"""Metrics and callbacks on Keras' other backends, without TensorFlow."""

import importlib.util
import os
import subprocess
import sys

import pytest

SCRIPT = """
import sys
sys.modules["tensorflow"] = None
import keras, numpy as np
import caltrain_tf as ct
from caltrain_tf import metrics
from tests.metrics.cases import probabilities

probs, labels = probabilities(300, 4)
halves = [(labels[:150], probs[:150]), (labels[150:], probs[150:])]
compile = lambda function: function
if keras.backend.backend() == "jax":
    from jax import jit as compile

for metric, exact in (
    (metrics.ExpectedCalibrationError(), metrics.calibration_error),
    (
        metrics.MarginalCalibrationError(num_classes=4),
        metrics.marginal_calibration_error,
    ),
    (metrics.BrierScore(), metrics.brier_score),
    (metrics.KSError(), metrics.ks_error),
    (metrics.NegativeLogLikelihood(), metrics.negative_log_likelihood),
    (metrics.AverageUncertainty(), metrics.average_uncertainty),
):
    # As `fit` does it on JAX.
    state = [variable.value for variable in metric.variables]
    update = compile(metric.stateless_update_state)
    for batch in halves:
        state = update(state, *batch)
    value = float(compile(metric.stateless_result)(state))
    # An example that shares a cell may be in the next of 15 bins.
    assert abs(value - exact(probs, labels)) < 5e-3, metric.name

soft = metrics.SoftBinnedECE()
for batch in halves:
    soft.update_state(*batch)
print(float(soft.result()))

ct.figures.reliability_diagram(probs, labels)
metrics.bootstrap(metrics.accuracy, probs, labels, 3)

generator = np.random.default_rng(0)
y = np.arange(192) % 3
x = np.random.default_rng(7).normal(size=(3, 5))[y]
x = (x + 1.5 * generator.normal(size=(192, 5))).astype("float32")
train, arrays = (x[:64], y[:64]), (x[64:], y[64:])
batches = [(x[i : i + 64], y[i : i + 64]) for i in (64, 128)]
keras.utils.set_random_seed(1)
model = keras.Sequential([
    keras.Input([5]), keras.layers.Dense(16, "relu"), keras.layers.Dense(3)])
model.compile("sgd", ct.losses.Focal(from_logits=True), metrics=["accuracy"])
for data in (arrays, batches):
    history = model.fit(
        *train, batch_size=32, epochs=2, verbose=0, validation_data=arrays,
        callbacks=[
            ct.callbacks.TemperatureScaledLoss(data),
            keras.callbacks.EarlyStopping("val_ts_nll", mode="min"),
        ]).history
    logits = model.predict(arrays[0], verbose=0)
    found = ct.callbacks.temperature_scaled_nll(logits, arrays[1])
    assert abs(found["ts_nll"] - history["val_ts_nll"][-1]) < 1e-5

tokens = generator.integers(0, 5, (20, 6))
tagger = keras.Sequential([
    keras.Input([6], dtype="int32"),
    keras.layers.Embedding(5, 4, mask_zero=True),
    keras.layers.Dense(5)])
tagger.compile("sgd", ct.losses.NLL(from_logits=True))
history = tagger.fit(tokens, tokens, epochs=1, verbose=0, callbacks=[
    ct.callbacks.TemperatureScaledLoss((tokens, tokens))]).history
logits = tagger.predict(tokens, verbose=0)
found = ct.callbacks.temperature_scaled_nll(
    logits, tokens, 1.0 * (tokens != 0))
assert abs(found["ts_nll"] - history["val_ts_nll"][0]) < 1e-5
"""


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_all_metrics(backend):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    environment = {"KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert 0 < float(done.stdout) < 1
