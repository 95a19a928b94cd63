"""Collects the rows of a report from runs, or from a folder of CSV files."""

import collections
import gzip
import io
import itertools
import json
import os

import pandas as pd
import tqdm

from caltrain_tf import checks, files, metrics, posthoc
from caltrain_tf.experiments import config as settings
from caltrain_tf.experiments import figures, measures, prediction_files

_RUN = ["setting", "objective", "seed"]
# What can be fitted to the predictions of finished runs.
CALIBRATORS = {
    "dirichlet": posthoc.DirichletCalibration,
    "auto": posthoc.AutoCalibration,
}
# Parts of a configuration that differ between objectives, or that do not change
# the trained network.
_NOT_SHARED = (
    *("seed.", "loss.", "interleaved.", "optimizer.l2.", "search."),
    *("checkpoint_every_steps.", "evaluate_every.", "keep_checkpoints."),
)
# Columns of frames that may be empty: a row per run with every number of its
# `results.json`, per bin of equal width, and per row of `shift.csv`.
_COLUMNS = {
    "results": _RUN,
    "reliability": [*_RUN, "calibrator"],
    "shift": [*_RUN, "corruption", "severity", "calibrator", "metric", "value"],
}
Rows = collections.namedtuple("Rows", _COLUMNS)


def make_rows(**frames):
    """Returns `Rows` of frames or dictionaries; the others are empty."""
    empty = {name: pd.DataFrame(columns=c) for name, c in _COLUMNS.items()}
    return Rows(**{k: pd.DataFrame(v) for k, v in (empty | frames).items()})


def of_setting(rows, setting):
    """Returns the `Rows` of one setting."""
    return Rows(*(part[part["setting"] == setting] for part in rows))


def collect(paths, calibrators=()):
    """Returns the sorted `Rows` below folders of runs, or of earlier rows."""
    paths = [paths] if isinstance(paths, str | os.PathLike) else paths
    for name in calibrators:
        checks.choice("--calibrators", name, tuple(CALIBRATORS))
    # One of the paths may be inside another.
    folders = {f.resolve(): f for path in paths for f in _find_folders(path)}
    frames = {name: [] for name in _COLUMNS}
    runs = []
    for folder in tqdm.tqdm(folders.values(), "reading", disable=None):
        if (folder / "results.csv").exists():
            # Rows in a repository may be compressed.
            for name, end in itertools.product(_COLUMNS, (".csv", ".csv.gz")):
                if (path := folder / f"{name}{end}").exists():
                    frames[name].append(_read_csv(path))
            continue
        try:
            config = files.read_json(folder / "config.json")
            runs.append((config, _read_run(folder, config, calibrators)))
        except (KeyError, OSError, ValueError) as error:
            checks.warn(f"{os.fspath(folder)} is left out: {error}")
    names = _setting_names([config for config, _ in runs])
    for setting, (_, parts) in zip(names, runs, strict=True):
        for name, frame in parts.items():
            frame.insert(0, "setting", setting)
            frames[name].append(frame)
    full = {name: [f for f in each if len(f)] for name, each in frames.items()}
    rows = make_rows(
        **{k: pd.concat(v, ignore_index=True) for k, v in full.items() if v}
    )
    if rows.results.empty:
        raise ValueError(f"No finished run. Received: {paths}")
    if (twice := rows.results.duplicated(_RUN)).any():
        name = "{}, {}, seed {}".format(*rows.results[_RUN][twice].iloc[0])
        raise ValueError(f"A run must be there once. Received twice: {name}")
    return _sorted(rows)


def write_rows(rows, folder):
    """Writes `<name>.csv` of all rows."""
    for name, frame in rows._asdict().items():
        text = frame.to_csv(index=False, lineterminator="\n")
        files.write_text(folder / f"{name}.csv", text)


def _read_csv(path):
    texts = ("secondary", "hyperparameters")
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    if not content.endswith(b"\n"):
        raise ValueError(f"{path} is cut off")
    frame = pd.read_csv(
        io.BytesIO(content),
        dtype=dict.fromkeys(texts, object),
        # Of all versions of pandas, this one reads numbers to the last bit.
        engine="python",
        keep_default_na=False,
        na_values=[""],
    )
    return frame.fillna(dict.fromkeys(texts, ""))


def _find_folders(path):
    """Returns the folders of rows, or of runs, finished or not."""
    if (files.as_path(path) / "results.csv").exists():
        return [files.as_path(path)]
    folders = settings.find(path, "config.json")
    if not folders:
        raise ValueError(f"Pass folders of runs. Received: {os.fspath(path)!r}")
    return folders


def _read_run(folder, config, calibrators):
    """Returns the frames of a run by name; parts that it lacks are absent."""
    results = files.read_json(folder / "results.json")
    run = {"objective": settings.objective(config), "seed": config["seed"]}
    result = {
        **run,
        "primary": config["loss"]["primary"],
        "secondary": config["loss"]["secondary"] or "",
        "interleaved": config["interleaved"]["enabled"],
        "hyperparameters": _hyperparameters(config),
        **results,
    }
    frames, predictions = {}, folder / "predictions"
    if (predictions / "test.npz").exists():
        test = prediction_files.load(predictions / "test.npz")
        result["test_examples"] = len(test[1])
        options = {"binning": "equal_width", "from_logits": True}
        curve = metrics.reliability_curve(*test, **options)
        curve = pd.DataFrame(curve._asdict()).rename_axis("bin").reset_index()
        frames["reliability"] = curve.assign(calibrator="none", **run)
        for name in calibrators:
            path = predictions / "calibration.npz"
            fitted = CALIBRATORS[name]().fit(*prediction_files.load(path))
            logits, keys = fitted.transform(test[0]), ("accuracy", "ece", "nll")
            for key, value in measures.measure(logits, test[1], keys).items():
                result[f"{key}_{name}"] = value
    if (folder / "shift.csv").exists():
        frames["shift"] = _read_csv(folder / "shift.csv").assign(**run)
        about = files.read_json(predictions / "shift.json")
        result["shift_examples"] = about["num_examples"]
    return {"results": pd.DataFrame([result]), **frames}


def _setting_names(configs):
    """Returns the setting of every run, with what its namesakes differ by."""
    names, shared = [], []
    for config in configs:
        data = config["data"]
        words = [data["name"], config["model"], data["train_split"]]
        words += [f"{config['epochs']} epochs", f"batch {config['batch_size']}"]
        names.append(" ".join(filter(None, words)))
        options = settings.flatten(config)
        keys = [k for k in options if not f"{k}.".startswith(_NOT_SHARED)]
        shared.append({key: json.dumps(options[key]) for key in keys})
    options = pd.DataFrame(shared, dtype=object).fillna("absent")
    for name, alike in options.groupby(pd.Series(names, dtype=object)):
        differing = alike[sorted(alike.columns[alike.nunique() > 1])]
        for i, row in differing.iterrows():
            names[i] = ", ".join([name, *map("{} {}".format, row.index, row)])
    return names


def _hyperparameters(config):
    """Returns the hyperparameters of a run's objective as text."""
    loss, options = config["loss"], config["loss"]["options"]
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
    places = {name: i for i, name in enumerate(["", *figures.COLORS])}

    def place(column):
        is_loss = column.name in ("primary", "secondary")
        return column.map(places).fillna(len(places)) if is_loss else column

    keys = ["setting", "primary", "secondary", "objective", "seed"]
    results = rows.results.sort_values(keys, key=place, ignore_index=True)
    return Rows(results, *(results[_RUN].merge(p, on=_RUN) for p in rows[1:]))
