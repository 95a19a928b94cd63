"""Runs whose program takes no time, for the tests of pools and studies."""

import pathlib
import sys
import time

from caltrain_tf.experiments.config import Run

COMMAND = (sys.executable, str(pathlib.Path(__file__).with_name("fake_run.py")))


def make_run(folder, seed, act="", objective="nll", **config):
    """A run of `fake_run.py`."""
    return Run(
        f"{objective} seed {seed}",
        {
            "seed": seed,
            "epochs": 4,
            "act": act,
            "loss": {"primary": objective, "secondary": None},
            "interleaved": {"enabled": False},
            **config,
        },
        str(folder / objective / f"seed{seed}"),
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
