"""Runs in, rows out."""

import os

from caltrain_tf.report.rows import Rows
from caltrain_tf.report.rows import is_rows_folder
from caltrain_tf.report.rows import read_rows
from caltrain_tf.report.runs import find_folders
from caltrain_tf.report.runs import read_run
from caltrain_tf.report.runs import run_rows
from caltrain_tf.report.settings import setting_names

# In the order of the paper's tables; others come after.
_PRIMARIES = ("nll", "focal", "mse")
_SECONDARIES = (
    "",
    "avuc",
    "avuc_gs",
    "mmce",
    "sb_ece",
    "s_avuc",
    "sb_marginal_ece",
)


def collect(paths, *, dirichlet=False, progress=lambda text: None):
    """Reads runs as the rows of a report.

    What cannot be read, or is not finished, is left out, and listed.

    Args:
        paths: Folders of runs, at any depth, or of rows.
        dirichlet: Whether to fit Dirichlet calibration where `results.json`
            does not have it already.
        progress: Called with a text for every run.

    Returns:
        A `Rows`, sorted, without repetitions.
    """
    paths = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    collected = Rows([], [], [], [])
    origins, runs, seen = {}, [], set()
    for path in map(os.fspath, paths):
        folders = [path] if is_rows_folder(path) else find_folders(path)
        # One of them may be inside another.
        new = [f for f in folders if os.path.realpath(f) not in seen]
        seen.update(map(os.path.realpath, new))
        for folder in new:
            if is_rows_folder(folder):
                rows = read_rows(folder)
                _check_unique(origins, rows.results, folder)
                _extend(collected, rows)
            else:
                read_run(folder, runs, collected.left_out)
    names = setting_names([config for _, config, _ in runs])
    for number, (run, setting) in enumerate(zip(runs, names, strict=True), 1):
        progress(f"reading run {number} of {len(runs)}: {run[0]}")
        rows = run_rows(*run, setting, dirichlet)
        _check_unique(origins, rows.results, run[0])
        _extend(collected, rows)
    if not collected.results:
        reasons = "; ".join(
            f"{row['folder']}: {row['reason']}" for row in collected.left_out
        )
        raise ValueError(f"No finished run could be read. Received: {reasons}")
    return _sorted(collected)


def _extend(rows, more):
    for part, new in zip(rows, more, strict=True):
        part.extend(new)


def _check_unique(origins, results, folder):
    for row in results:
        run = _run(row)
        if run in origins:
            raise ValueError(
                f"`paths` must hold a run once. Received: {row['objective']} "
                f"with seed {row['seed']} ({row['setting']}) in "
                f"{origins[run]!r} and in {folder!r}"
            )
        origins[run] = folder


def _sorted(rows):
    def place(names, name):
        return (names.index(name), "") if name in names else (len(names), name)

    results = sorted(
        rows.results,
        key=lambda row: (
            row["setting"],
            place(_PRIMARIES, row["primary"]),
            place(_SECONDARIES, row["secondary"]),
            row["interleaved"],
            row["seed"],
        ),
    )
    order = {_run(row): index for index, row in enumerate(results)}

    def by_run(part):
        # Rows of a run that is not there have no place on the page.
        known = (row for row in part if _run(row) in order)
        return sorted(known, key=lambda row: order[_run(row)])

    left_out = sorted(
        rows.left_out, key=lambda row: (row["folder"], row["part"])
    )
    return Rows(results, by_run(rows.reliability), by_run(rows.shift), left_out)


def _run(row):
    return row["setting"], row["objective"], row["seed"]
