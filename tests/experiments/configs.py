"""The configurations of `configs/`, and a tiny one for tests."""

import pathlib
import runpy

CONFIGS = pathlib.Path(__file__).parents[2] / "configs"


def load(name):
    return runpy.run_path(str(CONFIGS / f"{name}.py"))["get_config"]()


# As flags, for the scripts: a few steps on a few digits.
TINY_FLAGS = {
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
