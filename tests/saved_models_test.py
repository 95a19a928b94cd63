"""A model that one process saves loads in another, which only imports us."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import warnings

import keras
import numpy as np

import caltrain_tf as ct

ROOT = pathlib.Path(__file__).parents[1]
# Keras itself imports TensorFlow to save a model where it can; here it cannot.
NO_TENSORFLOW = "import sys; sys.modules['tensorflow'] = None"
PROGRAM = """
import sys
from tests import saved_models_test
*folders, new_folder = sys.argv[1:]
for folder in folders:
    saved_models_test.load(folder)
if new_folder:
    saved_models_test.save(new_folder)
"""


def answer(model, images):
    return keras.ops.convert_to_numpy(model(images))


def save(folder):
    """Saves all of ours that a `.keras` file can hold, and what it answers.

    The loss, its parts, every streaming metric, every calibration layer, a
    network.
    """
    rng = np.random.default_rng(0)
    images = rng.normal(size=(8, 8, 8, 3)).astype("float32")
    labels = np.arange(8) % 3
    network = ct.models.get("wrn-10-1", input_shape=(8, 8, 3), num_classes=3)
    network.save(f"{folder}/network.keras")
    answers = {"network": answer(network, images)}

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
    config = json.dumps(model.get_compile_config())
    pathlib.Path(folder, "compiled.json").write_text(config)
    value = float(loss(labels, answer(model, images)))

    outputs = np.tile(4 * np.eye(3)[labels], (4, 1))
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
        answers[name] = answer(calibrated, images)
    np.savez(
        f"{folder}/answers.npz",
        images=images,
        labels=labels,
        loss=value,
        **answers,
    )


def load(folder):
    """Loads what `save` saved, and compares the answers."""
    answers = dict(np.load(f"{folder}/answers.npz"))
    images, labels, value = map(answers.pop, ("images", "labels", "loss"))
    for name, expected in answers.items():
        model = keras.saving.load_model(f"{folder}/{name}.keras")
        # Float32, and two backends' convolutions: what is lost on the way, a
        # weight or a temperature, changes the answers by tenths.
        np.testing.assert_allclose(
            answer(model, images), expected, rtol=1e-3, atol=1e-3
        )
    model = keras.saving.load_model(f"{folder}/compiled.keras")
    expected = json.loads(pathlib.Path(folder, "compiled.json").read_text())
    config = model.get_compile_config()
    # Whether XLA compiles depends on the backend; these do not.
    for key in ("loss", "metrics"):
        assert config[key] == expected[key], key
    found = float(model.loss(labels, answer(model, images)))
    np.testing.assert_allclose(found, value, rtol=1e-3)


def run(backend, *folders):
    """Loads from all folders and saves into the last, if it has a name."""
    code = PROGRAM if backend == "tensorflow" else NO_TENSORFLOW + PROGRAM
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *folders],
        env={**os.environ, "KERAS_BACKEND": backend},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_saved_models_load_in_a_fresh_process(tmp_path):
    folders = [str(tmp_path)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        save(folders[0])
    for backend in ("jax", "torch"):
        if importlib.util.find_spec(backend):
            (tmp_path / backend).mkdir()
            run(backend, *folders, str(tmp_path / backend))
            folders.append(str(tmp_path / backend))
    run("tensorflow", *folders, "")
