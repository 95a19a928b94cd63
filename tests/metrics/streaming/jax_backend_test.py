"""The streaming metrics on Keras' JAX backend, in a process of its own."""

import os
import subprocess
import sys

SCRIPT = """
import sys
import jax, numpy as np
import caltrain_tf as ct
from caltrain_tf import metrics
from tests.metrics.cases import probabilities
probs, labels = probabilities(300, 4)
for kind, exact in (
    (metrics.ExpectedCalibrationError, metrics.calibration_error),
    (metrics.MarginalCalibrationError, metrics.marginal_calibration_error),
    (metrics.BrierScore, metrics.brier_score),
):
    metric = kind()
    metric.update_state(labels[:100], probs[:100])
    state = [variable.value for variable in metric.variables]
    update = jax.jit(metric.stateless_update_state)
    for i in (100, 200):
        state = update(state, labels[i : i + 100], probs[i : i + 100])
    value = float(jax.jit(metric.stateless_result)(state))
    assert abs(value - exact(probs, labels)) < 2e-4, kind
# The others, without compiling each.
for kind, exact in (
    (metrics.KSError, metrics.ks_error),
    (metrics.NegativeLogLikelihood, metrics.negative_log_likelihood),
    (metrics.AverageUncertainty, metrics.average_uncertainty),
):
    metric = kind()
    metric.update_state(labels, probs)
    assert abs(float(metric.result()) - exact(probs, labels)) < 1e-4, kind
soft = metrics.SoftBinnedECE()
soft.update_state(labels, probs)
print(float(soft.result()))
ct.figures.reliability_diagram(probs, labels)
metrics.bootstrap(metrics.accuracy, probs, labels, 3)
assert "tensorflow" not in sys.modules
"""


def test_all_metrics():
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert 0 < float(done.stdout) < 1
