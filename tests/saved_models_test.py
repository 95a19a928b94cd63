"""A model that one process saves loads in another, which only imports us."""

import importlib.util
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]
BACKENDS = [
    backend
    for backend in ("tensorflow", "jax", "torch")
    if importlib.util.find_spec(backend)
]

# Everything of ours that a `.keras` file can hold: the loss, its parts, every
# streaming metric, every calibration layer, a network. Beside the models: what
# they answer.
SAVE = """
import json, sys, keras, numpy as np
import caltrain_tf as ct

folder = sys.argv[1]
rng = np.random.default_rng(0)
images = rng.normal(size=(8, 8, 8, 3)).astype("float32")
labels = np.arange(8) % 3
answer = lambda model: keras.ops.convert_to_numpy(model(images))

network = ct.models.get("wrn-10-1", input_shape=(8, 8, 3), num_classes=3)
network.save(f"{folder}/network.keras")

loss = ct.CompositeLoss("focal", "sb_ece", beta=0.5, from_logits=True)
model = keras.Sequential(
    [keras.Input((8, 8, 3)), keras.layers.Flatten(), keras.layers.Dense(3)]
)
metrics = [
    metric(from_logits=True)
    for metric in (
        ct.metrics.AverageUncertainty,
        ct.metrics.BrierScore,
        ct.metrics.ExpectedCalibrationError,
        ct.metrics.KSError,
        ct.metrics.NegativeLogLikelihood,
        ct.metrics.SoftBinnedECE,
    )
]
metrics.append(ct.metrics.MarginalCalibrationError(3, from_logits=True))
metrics += loss.part_metrics()
model.compile("sgd", loss, metrics=metrics, run_eagerly=True)
model.save(f"{folder}/compiled.keras")
with open(f"{folder}/compiled.json", "w") as file:
    json.dump(model.get_compile_config(), file)

outputs = np.tile(4 * np.eye(3)[labels], (4, 1))
answers = {"network": answer(network)}
for calibrator in (
    ct.posthoc.TemperatureScaling(),
    ct.posthoc.EnsembleTemperatureScaling(),
    ct.posthoc.VectorScaling(),
    ct.posthoc.MatrixScaling(),
    ct.posthoc.DirichletCalibration(),
    ct.posthoc.ConformalSets("raps", k_reg=1, randomized=False),
):
    name = type(calibrator).__name__
    # Not separable: labels that can be told apart have no best temperature.
    calibrator.fit(outputs, np.r_[labels[::-1], labels, labels, labels])
    calibrated = calibrator.append_to(model)
    calibrated.save(f"{folder}/{name}.keras")
    answers[name] = answer(calibrated)
np.savez(f"{folder}/answers.npz", images=images, labels=labels, **answers)
value = loss(labels, answer(model))
np.savez(f"{folder}/loss.npz", keras.ops.convert_to_numpy(value))
"""

LOAD = """
import json, sys
import caltrain_tf
import keras, numpy as np

for folder in sys.argv[2:]:
    answers = dict(np.load(f"{folder}/answers.npz"))
    images, labels = answers.pop("images"), answers.pop("labels")
    for name, expected in answers.items():
        model = keras.saving.load_model(f"{folder}/{name}.keras")
        # Float32, and two backends' convolutions: what is lost on the way, a
        # weight or a temperature, changes the answers by tenths.
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(model(images)),
            expected,
            rtol=1e-3,
            atol=1e-3,
        )
    model = keras.saving.load_model(f"{folder}/compiled.keras")
    with open(f"{folder}/compiled.json") as file:
        expected = json.load(file)
    config = model.get_compile_config()
    # Whether XLA compiles depends on the backend; these do not.
    for key in ("loss", "metrics"):
        assert config[key] == expected[key], key
    value = model.loss(labels, keras.ops.convert_to_numpy(model(images)))
    expected = np.load(f"{folder}/loss.npz")["arr_0"]
    np.testing.assert_allclose(value, expected, rtol=1e-3)
"""

# Keras itself imports TensorFlow to save a model where it can; here it cannot.
NO_TENSORFLOW = "import sys; sys.modules['tensorflow'] = None\n"


def run(backend, code, *arguments):
    if backend != "tensorflow":
        code = NO_TENSORFLOW + code
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *arguments],
        env={**os.environ, "KERAS_BACKEND": backend},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_saved_models_load_in_a_fresh_process(tmp_path):
    folders = []
    for backend in BACKENDS:
        folder = tmp_path / backend
        folder.mkdir()
        # Loads what the earlier processes saved, before it makes its own.
        run(backend, LOAD + SAVE, str(folder), *folders)
        folders.append(str(folder))
    run(BACKENDS[0], LOAD, "", *folders)
