"""What a user of JAX does, in a process of its own without TensorFlow."""

import os
import subprocess
import sys

PROGRAM = """
import sys
sys.modules["tensorflow"] = None  # An import of it fails.
import keras
import numpy as np
import caltrain_tf as ct

rng = np.random.default_rng(0)
labels = rng.integers(0, 3, size=200)
logits = rng.normal(size=(200, 3)) + 2 * np.eye(3)[labels]
inputs = keras.Input((3,))
model = keras.Model(inputs, keras.layers.Dense(3)(inputs))
for name, kind in ct.posthoc.CALIBRATORS.items():
    calibrator = kind().fit(logits, labels)
    calibrator.save(f"{name}.json")
    calibrator = ct.posthoc.load(f"{name}.json")
    loaded = calibrator.append_to(model, probabilities=True)
    if name in ("TemperatureScaling", "MatrixScaling"):
        loaded.save(f"{name}.keras")
        loaded = keras.models.load_model(f"{name}.keras")
    np.testing.assert_allclose(
        loaded(logits),
        calibrator.predict_proba(model(logits)),
        rtol=1e-4,
        atol=1e-6,
    )
batches = [(logits[i : i + 50], labels[i : i + 50]) for i in (0, 50, 100, 150)]
ct.posthoc.TemperatureScaling("sb_ece").fit(batches)
assert sys.modules["tensorflow"] is None
"""


def test_jax_needs_no_tensorflow(tmp_path):
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
