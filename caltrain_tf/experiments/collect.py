"""Collects the rows of a report from runs, or from a folder of CSV files."""

import json
import math
import os
from typing import NamedTuple

import pandas as pd

from caltrain_tf import files, metrics, posthoc
from caltrain_tf.experiments import figures, measures, prediction_files

_RUN = ["setting", "objective", "seed"]
# The columns that every frame of `Rows` has.
_COLUMNS = {
    "results": [
        *("setting", "objective", "primary", "secondary", "interleaved"),
        *("seed", "hyperparameters", "accuracy", "ece"),
    ],
    "reliability": [
        *(*_RUN, "calibrator", "bin", "confidence", "accuracy", "count"),
    ],
    "shift": [
        *(*_RUN, "dataset", "corruption", "severity"),
        *("calibrator", "metric", "value"),
    ],
    "left_out": ["folder", "part", "reason"],
}
# Whole numbers that may be missing.
_COUNTS = ("test_examples", "shift_examples")
# Parts of a configuration that differ between objectives, or that do not change
# the trained network.
_NOT_SHARED = (
    *("seed", "loss", "interleaved", "optimizer.l2"),
    *("checkpoint_every_steps", "evaluate_every", "keep_checkpoints", "search"),
)


class Rows(NamedTuple):
    """The data of a report, as pandas frames.

    Attributes:
        results: One row per run: `setting`, `objective`, `primary`,
            `secondary` ("" for none), `interleaved`, `seed`,
            `hyperparameters`, every number of its `results.json`, and
            `test_examples` and `shift_examples`, the numbers of images in the
            test split and in each set of the shift benchmark, where known.
        reliability: One row per equal-width bin of a run and a calibrator.
        shift: `setting`, `objective`, `seed` and the columns of `shift.csv`.
        left_out: `folder`, `part` and `reason` of data that could not be read.
    """

    results: pd.DataFrame
    reliability: pd.DataFrame
    shift: pd.DataFrame
    left_out: pd.DataFrame


def make_rows(**parts):
    """Returns `Rows` of frames or dictionaries; the others are empty."""
    frames = []
    for name, columns in _COLUMNS.items():
        part = parts.get(name, ())
        frame = pd.DataFrame(part if len(part) else {c: [] for c in columns})
        types = {"seed": int, **dict.fromkeys(_COUNTS, "Int64")}
        there = {key: kind for key, kind in types.items() if key in frame}
        frames.append(frame.astype(there))
    return Rows(*frames)


def of_setting(rows, setting):
    """Returns the `Rows` of one setting."""
    *parts, left_out = rows
    return Rows(*(p[p["setting"] == setting] for p in parts), left_out)


def collect(paths, *, dirichlet=False, progress=lambda text: None):
    """Returns the sorted `Rows` of runs.

    Runs that are unfinished or cannot be read are listed in `left_out`.

    Args:
        paths: Folders of runs, at any depth, or of the rows of an earlier
            report; local or in a bucket.
        dirichlet: Whether to fit Dirichlet calibration if `results.json` does
            not have it already.
        progress: Called with a text for every run.
    """
    paths = [paths] if isinstance(paths, str | os.PathLike) else paths
    folders = {
        # One of the paths may be inside another.
        folder.resolve(): folder
        for path in map(files.as_path, paths)
        for folder in _find_folders(path)
    }
    parts, runs, left_out = [], [], []
    for folder in folders.values():
        if (folder / "results.csv").exists():
            parts.append((folder, read_rows(folder)))
            continue
        try:
            runs.append((folder, *_read_run(folder)))
        except ValueError as error:
            left_out.append((os.fspath(folder), "run", str(error)))
    settings = _setting_names([config for _, config, _ in runs])
    for number, (run, setting) in enumerate(zip(runs, settings, strict=True)):
        progress(f"reading run {number + 1} of {len(runs)}: {run[0]}")
        parts.append((run[0], _run_rows(*run, setting, dirichlet)))
    left_out = pd.DataFrame(left_out, columns=_COLUMNS["left_out"])
    parts.append((None, make_rows(left_out=left_out)))
    _check_unique(parts)
    frames = zip(*(rows for _, rows in parts), strict=True)
    collected = Rows(*map(_concatenate, frames))
    if collected.results.empty:
        left_out = collected.left_out
        reasons = "; ".join(left_out["folder"] + ": " + left_out["reason"])
        raise ValueError(f"No finished run could be read. Received: {reasons}")
    return _sorted(collected)


def read_rows(folder):
    """Reads the `Rows` that `write_rows` has written."""
    frames = {}
    for name in _COLUMNS:
        path = files.as_path(folder) / f"{name}.csv"
        if path.exists():
            with path.open() as file:
                frames[name] = _read_csv(file)
    results = frames["results"]
    for key in ("secondary", "hyperparameters"):
        texts = results[key].astype(object)
        results[key] = texts.where(texts.notna(), "")
    return make_rows(**frames)


def write_rows(rows, folder):
    """Writes `<name>.csv` of all rows, and returns the paths."""
    paths = []
    for name, frame in zip(_COLUMNS, rows, strict=True):
        paths.append(folder / f"{name}.csv")
        text = frame.to_csv(index=False, lineterminator="\n")
        files.write_text(paths[-1], text)
    return paths


def _find_folders(path):
    """Returns the folders of rows, or of runs, finished or not."""
    if (path / "results.csv").exists():
        return [path]
    folders = sorted(
        files.as_path(folder)
        for folder, _, names in path.walk()
        if {"config.json", "results.json"} & set(names)
    )
    if not folders:
        raise ValueError(
            "`paths` must be folders of runs, with config.json and "
            "results.json, or hold such folders, or be folders of rows, with "
            f"results.csv. Received: {os.fspath(path)!r}"
        )
    return folders


def _read_run(folder):
    """Reads the configuration and the results of a run."""
    parts = []
    for name in ("config.json", "results.json"):
        if not (folder / name).exists():
            raise ValueError(f"not finished: no {name}")
        parts.append(json.loads((folder / name).read_text()))
    config, results = parts
    for key in ("accuracy", "ece"):
        if not math.isfinite(results.get(key, math.nan)):
            raise ValueError(f"{key} is {results.get(key)} in results.json")
    return config, results


def _run_rows(folder, config, results, setting, dirichlet):
    """Returns the `Rows` of a run; parts that it does not have are empty."""
    loss, interleaved = config["loss"], bool(config["interleaved"]["enabled"])
    secondary = loss.get("secondary") or ""
    objective = "+".join(filter(None, (loss["primary"], secondary)))
    objective += "-interleaved" * interleaved
    result = {
        "setting": setting,
        "objective": objective,
        "primary": loss["primary"],
        "secondary": secondary,
        "interleaved": interleaved,
        "seed": int(config["seed"]),
        "hyperparameters": _hyperparameters(config),
        **results,
    }
    left_out = []

    def attempt(part, function, *arguments):
        try:
            return function(*arguments)
        except FileNotFoundError:
            return None
        except (KeyError, OSError, ValueError) as error:
            reason = {"part": part, "reason": str(error)}
            left_out.append({"folder": os.fspath(folder), **reason})
            return None

    reliability, splits = None, attempt("predictions", _load_splits, folder)
    if splits is not None:
        result["test_examples"] = len(splits["test"][1])
        reliability = attempt("reliability", _reliability_rows, splits)
        if dirichlet and "ece_dirichlet" not in results:
            result |= attempt("dirichlet", _dirichlet_results, splits) or {}
    shift = attempt("shift", _shift_rows, folder)
    if shift is not None:
        count = attempt("shift", _shift_examples, folder)
        result |= {} if count is None else {"shift_examples": count}
    run = {key: result[key] for key in _RUN}
    parts = {
        name: pd.DataFrame([run]).merge(frame, "cross")
        for name, frame in (("reliability", reliability), ("shift", shift))
        if frame is not None
    }
    return make_rows(results=[result], left_out=left_out, **parts)


def _load_splits(folder):
    """Returns the logits and labels of the calibration and test splits."""
    return {
        split: prediction_files.load(folder / "predictions" / f"{split}.npz")
        for split in ("calibration", "test")
    }


def _read_csv(file):
    # Of all versions of pandas, this engine reads numbers to the last bit.
    return pd.read_csv(
        file, engine="python", keep_default_na=False, na_values=[""]
    )


def _shift_rows(folder):
    with (folder / "shift.csv").open() as file:
        rows = _read_csv(file)
    return rows[_COLUMNS["shift"][len(_RUN) :]]


def _shift_examples(folder):
    """Returns the number of images in each set of a run's shift benchmark."""
    path = folder / "predictions" / "shift.json"
    return json.loads(path.read_text()).get("num_examples")


def _reliability_rows(splits):
    """Returns the reliability of the test split before and after scaling."""
    logits, labels = splits["test"]
    outputs = {"none": logits}
    calibrators = measures.fit_calibrators(*splits["calibration"])
    for name, calibrator in calibrators.items():
        outputs[name] = calibrator.transform(logits)
    frames = []
    for name, scaled in outputs.items():
        curve = metrics.reliability_curve(
            scaled, labels, binning="equal_width", from_logits=True
        )
        frame = pd.DataFrame(curve._asdict()).rename_axis("bin").reset_index()
        frame.insert(0, "calibrator", name)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def _dirichlet_results(splits):
    """Returns test accuracy, ECE and NLL after Dirichlet calibration."""
    calibrator = posthoc.DirichletCalibration().fit(*splits["calibration"])
    logits, labels = splits["test"]
    measured = measures.measure(calibrator.transform(logits), labels)
    return {
        f"{key}_dirichlet": measured[key] for key in ("accuracy", "ece", "nll")
    }


def _setting_names(configs):
    """Returns the name of the setting of every run.

    A setting is a configuration without the seed, the objective with its
    hyperparameters, and options that do not change the trained network. Its
    name is data set, network, training split, epochs and batch size, and, if
    several settings share these, the options by which they differ.
    """
    names, shared = [], []
    for config in configs:
        data = config["data"]
        words = [data["name"], config["model"], data.get("train_split")]
        words += [f"{config['epochs']} epochs", f"batch {config['batch_size']}"]
        names.append(" ".join(word for word in words if word is not None))
        flat = pd.json_normalize(config).iloc[0]
        shared.append(
            {
                key: json.dumps(value, default=str)
                for key, value in flat.items()
                if not f"{key}.".startswith(tuple(f"{n}." for n in _NOT_SHARED))
            }
        )
    texts = []
    for name, settings in zip(names, shared, strict=True):
        alike = [s for n, s in zip(names, shared, strict=True) if n == name]
        keys = sorted({key for other in alike for key in other})
        differing = [k for k in keys if len({s.get(k) for s in alike}) > 1]
        differing = [f"{k} {settings.get(k, 'absent')}" for k in differing]
        texts.append(", ".join([name, *differing]))
    return texts


def _hyperparameters(config):
    """Returns the hyperparameters of a run's objective as text."""
    loss = config["loss"]
    parts = [loss["primary"], loss.get("secondary")]
    options = loss.get("options", {})
    values = {
        f"{part}.{key}": value
        for part in filter(None, parts)
        for key, value in options.get(part, {}).items()
        if value is not None
    }
    if parts[1] is not None:
        values["beta"] = loss.get("beta")
    if config["interleaved"]["enabled"]:
        values["held out"] = config["interleaved"].get("held_out_fraction")
    values["l2"] = config.get("optimizer", {}).get("l2")
    return ", ".join(f"{key} {value}" for key, value in values.items())


def _check_unique(parts):
    origins = {}
    for folder, rows in parts:
        for run in rows.results[_RUN].itertuples(index=False):
            if run in origins:
                raise ValueError(
                    f"`paths` must hold a run once. Received: {run.objective} "
                    f"with seed {run.seed} ({run.setting}) in "
                    f"{os.fspath(origins[run])!r} and in {os.fspath(folder)!r}"
                )
            origins[run] = folder


def _concatenate(frames):
    filled = [frame for frame in frames if len(frame)]
    return pd.concat(filled, ignore_index=True) if filled else frames[0]


def _sorted(rows):
    """Returns the rows in the order of the paper's tables; others follow."""
    losses = ["", *figures.COLORS]

    def place(column):
        if column.name not in ("primary", "secondary"):
            return column
        known = {loss: f"{index:02}" for index, loss in enumerate(losses)}
        return column.map(lambda loss: known.get(loss, f"99{loss}"))

    keys = ["setting", "primary", "secondary", "interleaved", "seed"]
    results = rows.results.sort_values(keys, key=place, ignore_index=True)
    order = results[_RUN]
    return Rows(
        results,
        order.merge(rows.reliability, on=_RUN),
        order.merge(rows.shift, on=_RUN),
        rows.left_out.sort_values(["folder", "part"], ignore_index=True),
    )
