"""Collects the rows of a report from runs, or from a folder of CSV files."""

import json
import math
import os
from typing import NamedTuple

import pandas as pd

from caltrain_tf import files, metrics, posthoc
from caltrain_tf.experiments import config as settings
from caltrain_tf.experiments import figures, measures, prediction_files

_RUN = ["setting", "objective", "seed"]
# Parts of a configuration that differ between objectives, or that do not change
# the trained network.
_NOT_SHARED = (
    *("seed.", "loss.", "interleaved.", "optimizer.l2.", "search."),
    *("checkpoint_every_steps.", "evaluate_every.", "keep_checkpoints."),
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
        left_out: `folder` and `reason` of runs that could not be read.
    """

    results: pd.DataFrame
    reliability: pd.DataFrame
    shift: pd.DataFrame
    left_out: pd.DataFrame


# Columns of frames that may be empty.
_COLUMNS = {
    "results": _RUN,
    "reliability": [*_RUN, "calibrator"],
    "shift": [*_RUN, "corruption", "severity", "calibrator", "metric", "value"],
    "left_out": ["folder", "reason"],
}


def make_rows(**frames):
    """Returns `Rows` of frames or dictionaries; the others are empty."""
    return Rows(
        *(
            pd.DataFrame(frames.get(name, {column: [] for column in columns}))
            for name, columns in _COLUMNS.items()
        )
    )


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
    # One of the paths may be inside another.
    folders = {f.resolve(): f for path in paths for f in _find_folders(path)}
    frames = {name: [] for name in _COLUMNS}
    runs = {}
    for folder in folders.values():
        if (folder / "results.csv").exists():
            for name, frame in _read_rows(folder).items():
                frames[name].append(frame.assign(origin=os.fspath(folder)))
            continue
        progress(f"reading {folder}")
        try:
            config = json.loads((folder / "config.json").read_text())
            runs[folder] = config, _read_run(folder, config, dirichlet)
        except (KeyError, OSError, ValueError) as error:
            reason = {"folder": os.fspath(folder), "reason": str(error)}
            frames["left_out"].append(pd.DataFrame([reason]))
    names = _setting_names([config for config, _ in runs.values()])
    for setting, (folder, (_, parts)) in zip(names, runs.items(), strict=True):
        for name, frame in parts.items():
            frame.insert(0, "setting", setting)
            frames[name].append(frame.assign(origin=os.fspath(folder)))
    rows = make_rows(
        **{k: pd.concat(v, ignore_index=True) for k, v in frames.items() if v}
    )
    if rows.results.empty:
        reasons = rows.left_out["folder"] + ": " + rows.left_out["reason"]
        raise ValueError(f"No finished run. Received: {'; '.join(reasons)}")
    twice = rows.results[rows.results.duplicated(_RUN, keep=False)]
    if len(twice):
        raise ValueError(
            "A run must be there once. Received: "
            + "; ".join(
                f"{r.objective} in {r.origin}" for r in twice[:2].itertuples()
            )
        )
    return _sorted(rows)


def write_rows(rows, folder):
    """Writes `<name>.csv` of all rows, and returns the paths."""
    paths = []
    for name, frame in rows._asdict().items():
        paths.append(folder / f"{name}.csv")
        text = frame.to_csv(index=False, lineterminator="\n")
        files.write_text(paths[-1], text)
    return paths


def _read_rows(folder):
    """Returns the frames that `write_rows` has written, by name."""
    frames = {}
    for name in _COLUMNS:
        path = files.as_path(folder) / f"{name}.csv"
        if path.exists():
            with path.open() as file:
                frame = _read_csv(file)
            if len(frame):
                frames[name] = frame
    texts = ["secondary", "hyperparameters"]
    results = frames["results"]
    frames["results"] = results.assign(
        **{key: results[key].astype(object).fillna("") for key in texts}
    )
    return frames


def _read_csv(file):
    # Of all versions of pandas, this engine reads numbers to the last bit.
    return pd.read_csv(
        file, engine="python", keep_default_na=False, na_values=[""]
    )


def _find_folders(path):
    """Returns the folders of rows, or of runs, finished or not."""
    path = files.as_path(path)
    if (path / "results.csv").exists():
        return [path]
    folders = sorted(
        files.as_path(folder)
        for folder, _, names in path.walk()
        if "config.json" in names
    )
    if not folders:
        raise ValueError(
            "Pass folders of runs, with config.json and results.json, or of "
            f"rows, with results.csv. Received: {os.fspath(path)!r}"
        )
    return folders


def _read_run(folder, config, dirichlet):
    """Returns the frames of a run by name; parts that it lacks are absent."""
    if not (folder / "results.json").exists():
        raise ValueError("not finished: no results.json")
    results = json.loads((folder / "results.json").read_text())
    for key in ("accuracy", "ece"):
        if not math.isfinite(results[key]):
            raise ValueError(f"{key} is {results[key]} in results.json")
    result = {
        "objective": settings.objective(config),
        "primary": config["loss"]["primary"],
        "secondary": config["loss"]["secondary"] or "",
        "interleaved": config["interleaved"]["enabled"],
        "seed": config["seed"],
        "hyperparameters": _hyperparameters(config),
        **results,
    }
    frames = {}
    predictions = folder / "predictions"
    if (predictions / "test.npz").exists():
        test = prediction_files.load(predictions / "test.npz")
        result["test_examples"] = len(test[1])
        frames["reliability"] = _reliability(*test, results)
        if dirichlet and "ece_dirichlet" not in results:
            path = predictions / "calibration.npz"
            scaler = posthoc.DirichletCalibration()
            scaler.fit(*prediction_files.load(path))
            measured = measures.measure(scaler.transform(test[0]), test[1])
            for key in ("accuracy", "ece", "nll"):
                result[f"{key}_dirichlet"] = measured[key]
    if (folder / "shift.csv").exists():
        with (folder / "shift.csv").open() as file:
            frames["shift"] = _read_csv(file)
        about = json.loads((predictions / "shift.json").read_text())
        result["shift_examples"] = about["num_examples"]
    run = {key: result[key] for key in _RUN[1:]}
    frames = {k: frame.assign(**run) for k, frame in frames.items()}
    return {"results": pd.DataFrame([result]), **frames}


def _reliability(logits, labels, results):
    """Returns the reliability of the test split before and after scaling."""
    frames = []
    for name in ("none", *measures.CALIBRATORS):
        temperature = results.get(f"temperature_{name}", 1.0)
        curve = metrics.reliability_curve(
            logits / temperature,
            labels,
            binning="equal_width",
            from_logits=True,
        )
        frame = pd.DataFrame(curve._asdict()).rename_axis("bin").reset_index()
        frame.insert(0, "calibrator", name)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


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
        shared.append(
            {
                key: json.dumps(value)
                for key, value in settings.flatten(config).items()
                if not f"{key}.".startswith(_NOT_SHARED)
            }
        )
    texts = []
    for name, own in zip(names, shared, strict=True):
        alike = [s for n, s in zip(names, shared, strict=True) if n == name]
        keys = sorted({key for other in alike for key in other})
        differing = [k for k in keys if len({s.get(k) for s in alike}) > 1]
        differing = [f"{k} {own.get(k, 'absent')}" for k in differing]
        texts.append(", ".join([name, *differing]))
    return texts


def _hyperparameters(config):
    """Returns the hyperparameters of a run's objective as text."""
    loss, options = config["loss"], config["loss"].get("options", {})
    values = {
        f"{part}.{key}": value
        for part in filter(None, (loss["primary"], loss["secondary"]))
        for key, value in options.get(part, {}).items()
        if value is not None
    }
    if loss["secondary"] is not None:
        values["beta"] = loss["beta"]
    if config["interleaved"]["enabled"]:
        values["held out"] = config["interleaved"]["held_out_fraction"]
    values["l2"] = config["optimizer"]["l2"]
    return ", ".join(f"{key} {value}" for key, value in values.items())


def _sorted(rows):
    """Returns the rows in the order of the paper's tables; others follow."""
    places = {loss: f"{i:02}" for i, loss in enumerate(["", *figures.COLORS])}

    def place(column):
        if column.name not in ("primary", "secondary"):
            return column
        return column.map(lambda loss: places.get(loss, f"99{loss}"))

    keys = ["setting", "primary", "secondary", "interleaved", "seed"]
    results = rows.results.drop(columns="origin")
    results = results.sort_values(keys, key=place, ignore_index=True)
    for key in ("test_examples", "shift_examples"):
        if key in results:
            results[key] = results[key].astype("Int64")
    parts = (
        results[_RUN].merge(
            part.drop(columns="origin", errors="ignore"), on=_RUN
        )
        for part in (rows.reliability, rows.shift)
    )
    return Rows(results, *parts, rows.left_out[_COLUMNS["left_out"]])
