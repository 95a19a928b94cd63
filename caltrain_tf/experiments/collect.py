"""Collects the rows of a report from runs, or from a folder of CSV files."""

import json
import math
import os
import re
import warnings
from typing import NamedTuple

import pandas as pd

from caltrain_tf import evaluation, files, metrics, posthoc

# Columns that each file must have.
_REQUIRED = {
    "results.csv": (
        *("setting", "objective", "primary", "secondary", "interleaved"),
        *("seed", "accuracy", "ece"),
    ),
    "reliability.csv": (
        *("setting", "objective", "seed", "calibrator"),
        *("bin", "confidence", "accuracy", "count"),
    ),
    "shift.csv": (
        *("setting", "objective", "seed", "dataset", "corruption"),
        *("severity", "calibrator", "metric", "value"),
    ),
    "left_out.csv": ("folder", "part", "reason"),
}
ROWS_FILES = tuple(_REQUIRED)
_TEXT = frozenset(
    (
        *("setting", "objective", "primary", "secondary", "hyperparameters"),
        *("calibrator", "dataset", "corruption", "metric"),
        *("folder", "part", "reason"),
    )
)
_WHOLE = ("seed", "bin", "count", "severity")
_COUNTS = ("test_examples", "shift_examples")
# Columns that have no value for an empty bin.
_MAY_BE_EMPTY = ("confidence", "accuracy")
# In the order of the paper's tables; other losses follow.
_PRIMARIES = ("nll", "focal", "mse", "dual_focal", "bsce_gra")
_SECONDARIES = (
    *("", "avuc", "avuc_gs", "mmce", "sb_ece", "s_avuc", "sb_marginal_ece"),
    *("esd", "mdca", "dca", "mbls", "acls"),
)
_RUN = ["setting", "objective", "seed"]
# Parts of a configuration that differ between objectives, or that do not change
# the trained network.
_NOT_SHARED = (
    *("seed", "loss", "interleaved", "optimizer.l2"),
    *("checkpoint_every_steps", "evaluate_every", "keep_checkpoints", "search"),
)
_DATA = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "imagenet": "ImageNet",
    "digits": "handwritten digits",
}


class Rows(NamedTuple):
    """The data of a report, as pandas frames.

    Attributes:
        results: One row per run: `setting`, `objective`, `primary`,
            `secondary` (empty for none), `interleaved`, `seed`,
            `hyperparameters`, every number of its `results.json`, and
            `test_examples` and `shift_examples`, the numbers of images in the
            test split and in each set of the shift benchmark (missing if
            unknown).
        reliability: One row per bin of a run: `setting`, `objective`, `seed`,
            `calibrator`, `bin`, `confidence`, `accuracy` and `count`; NaN for
            an empty bin.
        shift: `setting`, `objective`, `seed` and the columns of a run's
            `shift.csv`.
        left_out: `folder`, `part` and `reason` of data that could not be read.
    """

    results: pd.DataFrame
    reliability: pd.DataFrame
    shift: pd.DataFrame
    left_out: pd.DataFrame


def make_rows(results=(), reliability=(), shift=(), left_out=()):
    """Returns `Rows` from dictionaries; empty frames have their columns too."""
    parts = (results, reliability, shift, left_out)
    frames = [
        pd.DataFrame(part) if len(part) else pd.DataFrame(columns=list(columns))
        for part, columns in zip(parts, _REQUIRED.values(), strict=True)
    ]
    # A type for integers that may be missing.
    counts = [key for key in _COUNTS if key in frames[0]]
    frames[0] = frames[0].astype(dict.fromkeys(counts, "Int64"))
    return Rows(*frames)


def collect(paths, *, dirichlet=False, progress=lambda text: None):
    """Returns the rows of a report about runs.

    Runs that are unfinished or cannot be read are left out and listed in
    `left_out`.

    Args:
        paths: Folders of runs, at any depth, or of rows; local or in a bucket.
        dirichlet: Whether to fit Dirichlet calibration if `results.json` does
            not have it already.
        progress: Called with a text for every run.

    Returns:
        A sorted `Rows` without repetitions.
    """
    paths = [paths] if isinstance(paths, str | os.PathLike) else paths
    parts, runs, left_out, seen = [], [], [], set()
    for path in map(files.as_path, paths):
        for folder in [path] if _has_rows(path) else _find_folders(path):
            # One of the paths may be inside another.
            real = folder.resolve()
            if real in seen:
                continue
            seen.add(real)
            if _has_rows(folder):
                parts.append((folder, read_rows(folder)))
                continue
            try:
                runs.append((folder, *_read_run(folder)))
            except ValueError as error:
                reason = {"part": "run", "reason": str(error)}
                left_out.append({"folder": os.fspath(folder), **reason})
    settings = _setting_names([config for _, config, _ in runs])
    for number, (run, setting) in enumerate(
        zip(runs, settings, strict=True), 1
    ):
        progress(f"reading run {number} of {len(runs)}: {run[0]}")
        parts.append((run[0], _run_rows(*run, setting, dirichlet)))
    parts.append((None, make_rows(left_out=left_out)))
    _check_unique(parts)
    collected = Rows(
        *(
            _concatenate(frames)
            for frames in zip(*(rows for _, rows in parts), strict=True)
        )
    )
    if collected.results.empty:
        reasons = "; ".join(
            f"{row.folder}: {row.reason}"
            for row in collected.left_out.itertuples()
        )
        raise ValueError(f"No finished run could be read. Received: {reasons}")
    return _sorted(collected)


def read_rows(folder):
    """Reads the rows of an earlier report.

    Args:
        folder: A folder with `results.csv`, and optionally `reliability.csv`,
            `shift.csv` and `left_out.csv`.

    Returns:
        A `Rows`.
    """
    folder = files.as_path(folder)
    if not _has_rows(folder):
        raise ValueError(
            f"`folder` must hold results.csv. Received: {os.fspath(folder)!r}"
        )
    return make_rows(
        *(
            _read_csv(folder / name) if (folder / name).exists() else ()
            for name in _REQUIRED
        )
    )


def rows_files(rows):
    """Returns the texts of CSV files by name.

    Numbers are written with full precision, so reading restores them exactly.

    Args:
        rows: A `Rows`.
    """
    return {
        name: part.to_csv(index=False, lineterminator="\n")
        for name, part in zip(_REQUIRED, rows, strict=True)
        if len(part)
    }


def setting_title(setting):
    """Returns a readable title of a setting.

    Example:
        >>> setting_title("cifar10 wrn-10-1 train[:2000] 20 epochs batch 64")
        'WRN-10-1 on 2,000 images of CIFAR-10, 20 epochs'
        >>> setting_title("digits wrn-10-1 16 epochs batch 64, momentum 0.8")
        'WRN-10-1 on handwritten digits, 16 epochs, momentum 0.8'
        >>> setting_title("something else")
        'something else'
    """
    found = re.fullmatch(
        r"(\S+) (\S+) (?:train\[:(\d+)(%?)\] )?(?:(\S+) )?(\d+ epochs)"
        r" batch \d+(, .*)?",
        setting,
    )
    if not found:
        return setting
    data, model, count, percent, split, epochs, more = found.groups()
    data = data_label(data)
    if count:
        part = f"{count}%" if percent else f"{int(count):,} images"
        data = f"{part} of {data}"
    if split:
        data += f" ({split})"
    model = re.sub(r"^(wrn|resnet)-", _model_name, model)
    return f"{model} on {data}, {epochs}{more or ''}"


def data_label(name):
    """Returns the name of a data set as papers write it."""
    return _DATA.get(name, name)


def _model_name(found):
    return {"wrn": "WRN-", "resnet": "ResNet-"}[found[1]]


def _has_rows(path):
    return (path / "results.csv").exists()


def _find_folders(path):
    """Returns the folders under a path that look like runs, finished or not."""
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
    for name in ("config.json", "results.json"):
        if not (folder / name).exists():
            raise ValueError(f"not finished: no {name}")
    try:
        config, results = (
            json.loads((folder / name).read_text())
            for name in ("config.json", "results.json")
        )
        # Raises here if something that is needed later is missing.
        _setting_names([config])
        _hyperparameters(config)
        int(config["seed"])
        for key in ("accuracy", "ece"):
            results[key]
        for key, value in results.items():
            if not isinstance(value, int | float) or not math.isfinite(value):
                raise ValueError(f"{key} is {value!r} in results.json")
    except KeyError as error:
        text = f"config.json or results.json has no {error}"
        raise ValueError(text) from error
    except (AttributeError, OSError, TypeError, ValueError) as error:
        raise ValueError(f"not readable: {error}") from error
    return config, results


def _run_rows(folder, config, results, setting, dirichlet):
    """Returns the `Rows` of a run; parts that it does not have are empty."""
    loss, interleaved = config["loss"], bool(config["interleaved"]["enabled"])
    objective = "+".join(filter(None, (loss["primary"], loss.get("secondary"))))
    objective += "-interleaved" * interleaved
    run = {"setting": setting, "objective": objective}
    run["seed"] = int(config["seed"])
    left_out, more = [], {}

    def attempt(part, function, *arguments):
        try:
            return function(*arguments)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            reason = {"part": part, "reason": str(error)}
            left_out.append({"folder": os.fspath(folder), **reason})
            return None

    splits = attempt("predictions", _load_splits, folder)
    reliability = None
    if splits is not None:
        more["test_examples"] = len(splits["test"][1])
        reliability = attempt("reliability", _reliability_rows, splits)
        if dirichlet and "ece_dirichlet" not in results:
            more |= attempt("dirichlet", _dirichlet_results, splits) or {}
    path = folder / "shift.csv"
    shift = attempt("shift", evaluation.read_shift_csv, path)
    if shift:
        count = attempt("shift", _shift_examples, folder)
        more |= {} if count is None else {"shift_examples": count}
    result = {
        "setting": setting,
        "objective": objective,
        "primary": loss["primary"],
        "secondary": loss.get("secondary") or "",
        "interleaved": interleaved,
        "seed": run["seed"],
        "hyperparameters": _hyperparameters(config),
        **{key: float(value) for key, value in results.items()},
        **more,
    }
    return make_rows(
        [result],
        [{**run, **row} for row in reliability or ()],
        [{**run, **row} for row in shift or ()],
        left_out,
    )


def _load_splits(folder):
    """Returns the logits and labels of the calibration and test splits."""
    return {
        split: evaluation.load_predictions(
            folder / "predictions" / f"{split}.npz"
        )
        for split in ("calibration", "test")
    }


def _shift_examples(folder):
    """Returns the number of images in each set of a run's shift benchmark."""
    path = folder / "predictions" / "shift.json"
    return json.loads(path.read_text()).get("num_examples")


def _reliability_rows(splits):
    """Returns the reliability of the test split before and after scaling."""
    logits, labels = splits["test"]
    outputs = {"none": logits}
    calibrators = evaluation.fit_calibrators(*splits["calibration"])
    for name, calibrator in calibrators.items():
        outputs[name] = calibrator.transform(logits)
    rows = []
    for name, scaled in outputs.items():
        curve = metrics.reliability_curve(
            scaled, labels, binning="equal_width", from_logits=True
        )
        frame = pd.DataFrame(curve._asdict()).rename_axis("bin").reset_index()
        frame.insert(0, "calibrator", name)
        rows += frame.to_dict("records")
    return rows


def _dirichlet_results(splits):
    """Returns test accuracy, ECE and NLL after Dirichlet calibration."""
    calibrator = posthoc.DirichletCalibration().fit(*splits["calibration"])
    logits, labels = splits["test"]
    measured = evaluation.measure(calibrator.transform(logits), labels)
    return {
        f"{key}_dirichlet": measured[key] for key in ("accuracy", "ece", "nll")
    }


def _setting_names(configs):
    """Returns the name of the setting of every run.

    A setting is a configuration without the seed, the objective with its
    hyperparameters, and options that do not change the trained network.

    Returns:
        One text per configuration, the same for configurations that share a
        setting: data set, network, training split, epochs and batch size, and,
        if several settings share these, the options by which they differ.
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
                for key, value in _flat(config).items()
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


def _flat(config, prefix=""):
    flat = {}
    for key, value in config.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


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
    def place(names, name):
        return (names.index(name), "") if name in names else (len(names), name)

    def order(row):
        return (
            row["setting"],
            place(_PRIMARIES, row["primary"]),
            place(_SECONDARIES, row["secondary"]),
            row["interleaved"],
            row["seed"],
        )

    records = rows.results[[*_RUN, "primary", "secondary", "interleaved"]]
    keys = [order(row) for row in records.to_dict("records")]
    ranks = sorted(range(len(keys)), key=keys.__getitem__)
    results = rows.results.iloc[ranks].reset_index(drop=True)

    def by_run(part):
        # Rows of runs without results are dropped.
        place = results[_RUN].reset_index(names="place")
        merged = part.merge(place, on=_RUN) if len(part) else part
        if len(merged):
            merged = merged.sort_values("place", kind="stable")
            merged = merged.drop(columns="place").reset_index(drop=True)
        return merged

    left_out = rows.left_out.sort_values(["folder", "part"], ignore_index=True)
    return Rows(results, by_run(rows.reliability), by_run(rows.shift), left_out)


def _read_csv(path):
    """Reads a CSV file of rows; raises if it is invalid."""
    required = _REQUIRED[path.name]
    try:
        with path.open() as file, warnings.catch_warnings():
            # pandas warns about lines with too many columns.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(
                file, dtype=str, na_filter=False, index_col=False
            )
        missing = [key for key in required if key not in frame]
        if missing:
            raise ValueError(f"no column {', '.join(missing)}")
        for key in frame:
            frame[key] = _read_column(key, frame[key], key in required)
    except (ValueError, Warning) as error:
        raise ValueError(
            f"{path.name} must hold what a report writes: {error}. "
            f"Received: {os.fspath(path)}"
        ) from error
    return frame


def _read_column(key, texts, required):
    if key in _TEXT:
        return texts
    try:
        if key == "interleaved":
            return texts.map({"True": True, "False": False}.__getitem__)
        if key in _WHOLE:
            return texts.map(int)
        # Python's parser is exact; that of pandas may not be.
        numbers = texts.map(lambda text: float(text or "nan"))
    except (KeyError, ValueError) as error:
        raise ValueError(f"{key} has a wrong value, {error}") from error
    if numbers.isin([math.inf, -math.inf]).any():
        raise ValueError(f"{key} is not finite")
    if required and key not in _MAY_BE_EMPTY and numbers.isna().any():
        raise ValueError(f"{key} is missing in some row")
    return numbers
