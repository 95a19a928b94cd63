"""The metrics on Keras' other backends, in processes without TensorFlow."""

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
for kind, exact in (
    (metrics.ExpectedCalibrationError, metrics.calibration_error),
    (metrics.MarginalCalibrationError, metrics.marginal_calibration_error),
    (metrics.BrierScore, metrics.brier_score),
    (metrics.KSError, metrics.ks_error),
    (metrics.NegativeLogLikelihood, metrics.negative_log_likelihood),
    (metrics.AverageUncertainty, metrics.average_uncertainty),
):
    metric = kind()
    metric.update_state(labels[:100], probs[:100])
    metric.update_state(labels[100:], probs[100:])
    # An example that shares a cell may be in the next of 15 bins.
    assert abs(float(metric.result()) - exact(probs, labels)) < 5e-3, kind

soft = metrics.SoftBinnedECE()
soft.update_state(labels, probs)
print(float(soft.result()))

if keras.backend.backend() == "jax":
    import jax

    metric = metrics.ExpectedCalibrationError()
    state = [variable.value for variable in metric.variables]
    update = jax.jit(metric.stateless_update_state)
    for i in (0, 100, 200):
        state = update(state, labels[i : i + 100], probs[i : i + 100])
    value = float(jax.jit(metric.stateless_result)(state))
    assert abs(value - metrics.calibration_error(probs, labels)) < 5e-3

ct.figures.reliability_diagram(probs, labels)
metrics.bootstrap(metrics.accuracy, probs, labels, 3)
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
