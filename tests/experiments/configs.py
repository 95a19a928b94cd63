"""The configurations of `configs/`, and a tiny one for tests."""

import json
import pathlib
import runpy

from caltrain_tf import files
from tests.baselines.scripts import run_here

CONFIGS = pathlib.Path(__file__).parents[2] / "configs"


def load(name):
    return runpy.run_path(str(CONFIGS / f"{name}.py"))["get_config"]()


# As flags, for the scripts: a few steps on a few digits.
TINY_FLAGS = {
    "model": "mlp-8",
    "data.train_split": "train[:96]",
    "batch_size": 32,
    "epochs": 3,
    "optimizer.decay_epochs": (2,),
    "steps_per_execution": 1,
    "jit_compile": False,
}


def tiny():
    config = load("quickstart")
    for key, value in TINY_FLAGS.items():
        config.update_from_flattened_dict({key: value})
    return config


def train(config, folder, *flags):
    """Trains as a study does, by the script, but in this process."""
    path = files.as_path(folder)
    if not (path / "config.json").exists():
        files.write_text(path / "config.json", json.dumps(config.to_dict()))
    done = run_here("cifar/train.py", f"--resume={folder}", *flags)
    assert done.returncode == 0, done.stderr
    return json.loads((path / "results.json").read_text())
