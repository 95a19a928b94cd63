"""Runs whose program takes no time, for the tests of pools and studies."""

import json
import pathlib
import time

from caltrain_tf.experiments.pool import Run

ROOT = pathlib.Path(__file__).parents[2]


def make_run(folder, seed, act="", objective="nll", **config):
    """A run of `fake_run.py`."""
    config = {
        "seed": seed,
        "epochs": 4,
        "act": act,
        "loss": {"primary": objective, "secondary": None},
        "interleaved": {"enabled": False},
        **config,
    }
    folder = str(folder / objective / f"seed{seed}")
    program = "tests/experiments/fake_run.py"
    return Run(
        f"{objective} seed {seed}",
        config,
        folder,
        ((program, folder, json.dumps(config)),),
    )


def starts(run):
    """Words about each time that the program of a run was started."""
    path = pathlib.Path(run.folder) / "starts"
    text = path.read_text() if path.exists() else ""
    return [line.split() for line in text.splitlines()]


def wait_for(condition, seconds=60):
    """Waits until something is so. Gives up in the end: what follows fails."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
