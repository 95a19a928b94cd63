"""The README's Python snippets run, one after the other."""

import pathlib
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

README = pathlib.Path(__file__).parents[1] / "README.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)


@pytest.fixture
def names(tmp_path, monkeypatch):
    """What the snippets take for granted: a model and data."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    images = rng.normal(size=(64, 8)).astype("float32")
    labels = rng.integers(0, 3, 64)
    model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(3)])
    val_logits = rng.normal(0, 3, (200, 3)).astype("float32")
    # Over-confident: the labels follow softer probabilities.
    noisy = val_logits + 2 * rng.gumbel(size=(200, 3))
    return {
        "model": model,
        "train": tf.data.Dataset.from_tensor_slices((images, labels)).batch(16),
        "val_logits": val_logits,
        "val_labels": noisy.argmax(axis=1),
        "probs": np.asarray(keras.ops.softmax(val_logits)),
        "labels": noisy.argmax(axis=1),
        "rows": [
            result_row(objective, seed)
            for objective in ("focal", "focal+sb_ece")
            for seed in range(3)
        ],
    }


def result_row(objective, seed):
    primary, _, secondary = objective.partition("+")
    return {
        "setting": "digits",
        "objective": objective,
        "primary": primary,
        "secondary": secondary,
        "interleaved": False,
        "seed": seed,
        "accuracy": 0.9 + 0.001 * seed,
        **dict.fromkeys(
            ("ece", "ece_ts", "ece_ts_sb_ece"),
            0.05 - 0.03 * bool(secondary) + 0.002 * seed,
        ),
    }


@pytest.mark.filterwarnings("ignore:.shuffle=True. was passed")
def test_the_snippets_run(names):
    assert SNIPPETS
    for snippet in SNIPPETS:
        exec(snippet, names)
    assert "secondary_loss" in names["model"].get_metrics_result()
