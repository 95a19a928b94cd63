"""Folders of runs as training leaves them, of made-up predictions."""

import copy
import json
import zlib

import numpy as np
import pandas as pd

from caltrain_tf.experiments import measures, prediction_files

# What a report reads of a configuration, and a little more.
CONFIG = {
    "seed": 0,
    "model": "wrn-10-1",
    "epochs": 16,
    "batch_size": 64,
    "precision": "float32",
    "evaluate_every": 2,
    "data": {"name": "digits", "train_split": None},
    "loss": {
        "primary": "nll",
        "secondary": None,
        "beta": 1.0,
        "options": {
            "nll": {"label_smoothing": 0.0},
            "s_avuc": {"temperature": 0.1, "threshold": 0.5},
        },
    },
    "interleaved": {"enabled": False, "held_out_fraction": 0.1},
    "optimizer": {"l2": 0.0002, "learning_rate": 0.1, "decay_epochs": [10]},
}

OBJECTIVES = (
    ("nll", None, False),
    ("nll", "mmce", False),
    ("nll", "s_avuc", True),
    ("focal", None, False),
    ("focal", "sb_ece", False),
    ("focal", "s_avuc", False),
    ("mse", None, False),
)
SMALL = OBJECTIVES[:2]
SHIFTS = [("none", 0)] + [
    (name, level) for name in ("fog", "snow", "contrast") for level in (1, 3, 5)
]


def changed(**changes):
    """A configuration with other values, by keys with two underscores."""
    config = copy.deepcopy(CONFIG)
    for key, value in changes.items():
        *path, last = key.split("__")
        part = config
        for name in path:
            part = part[name]
        part[last] = value
    return config


def write_run(folder, primary, secondary, interleaved, seed, **changes):
    """Writes a run; `changes` are those of `changed`.

    An objective's scale of the logits is off by a factor of its own.
    """
    config = changed(
        seed=seed,
        loss__primary=primary,
        loss__secondary=secondary,
        interleaved__enabled=interleaved,
        **changes,
    )
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    name = f"{primary} {secondary} {interleaved}".encode()
    rng = np.random.default_rng([seed, zlib.crc32(name)])
    scale = {"nll": 2.4, "focal": 0.5, "mse": 0.8}[primary]
    scale = scale**0.4 if secondary else scale
    scale *= 1 + 0.1 * rng.normal()
    skill = {"nll": 1.0, "focal": 0.99, "mse": 0.6}[primary]
    splits = {
        split: _outputs(rng, scale, skill, count)
        for split, count in (("calibration", 400), ("test", 600))
    }
    for split, outputs in splits.items():
        path = folder / "predictions" / f"{split}.npz"
        prediction_files.save(path, *outputs)
    calibrators = measures.fit_calibrators(*splits["calibration"])
    results = measures.final_results(splits["test"], calibrators)
    results |= {"train_accuracy": 1.0, "train_ece": 0.01 * rng.random()}
    (folder / "results.json").write_text(json.dumps(results))
    first = [array[:200] for array in splits["test"]]
    rows = _shift(rng, scale, skill, first, calibrators)
    path = folder / "predictions" / "shift.json"
    path.write_text(json.dumps({"num_examples": 200}))
    (folder / "shift.csv").write_text(pd.DataFrame(rows).to_csv(index=False))


def write_runs(folder, objectives=SMALL, seeds=(0, 1), **changes):
    """Writes `<objective>/seed<k>` for all objectives and seeds."""
    for primary, secondary, interleaved in objectives:
        name = "+".join(filter(None, (primary, secondary)))
        name += "-interleaved" if interleaved else ""
        for seed in seeds:
            path = folder / name / f"seed{seed}"
            write_run(path, primary, secondary, interleaved, seed, **changes)
    return folder


def _outputs(rng, scale, skill, count):
    logits = 3.5 * rng.normal(size=(count, 10))
    labels = (skill * logits + rng.gumbel(size=(count, 10))).argmax(axis=1)
    return (scale * logits).astype("float32"), labels


def _shift(rng, scale, skill, test, calibrators):
    rows = []
    for corruption, severity in SHIFTS:
        outputs = test
        if severity:
            skill_here = skill * (1 - 0.12 * severity)
            outputs = _outputs(rng, scale, skill_here, 200)
        logits, labels = outputs
        scaled = {"none": logits}
        for name, calibrator in calibrators.items():
            scaled[name] = calibrator.transform(logits)
        for calibrator, values in scaled.items():
            measured = measures.measure(values, labels)
            rows += [
                {
                    "dataset": "digits",
                    "corruption": corruption,
                    "severity": severity,
                    "calibrator": calibrator,
                    "metric": metric,
                    "value": measured[metric],
                }
                for metric in ("accuracy", "nll", "brier", "ece")
            ]
    return rows
