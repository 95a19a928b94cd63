"""What a report is made of, as rows and as a folder of CSV files."""

import csv
import io
import math
import os
from typing import NamedTuple

RESULTS, RELIABILITY, SHIFT, LEFT_OUT = FILES = (
    "results.csv",
    "reliability.csv",
    "shift.csv",
    "left_out.csv",
)
# Columns of text, of integers and of truth values; all others hold numbers.
_TEXT = frozenset(
    (
        *("setting", "objective", "primary", "secondary", "hyperparameters"),
        *("calibrator", "dataset", "corruption", "metric"),
        *("folder", "part", "reason"),
    )
)
_INTEGERS = frozenset(("seed", "bin", "count", "severity"))
_TRUTHS = {"True": True, "False": False}
_REQUIRED = {
    RESULTS: (
        *("setting", "objective", "primary", "secondary", "interleaved"),
        *("seed", "accuracy", "ece"),
    ),
    RELIABILITY: (
        *("setting", "objective", "seed", "calibrator"),
        *("bin", "confidence", "accuracy", "count"),
    ),
    SHIFT: (
        *("setting", "objective", "seed", "dataset", "corruption"),
        *("severity", "calibrator", "metric", "value"),
    ),
    LEFT_OUT: ("folder", "part", "reason"),
}


class Rows(NamedTuple):
    """Everything that a report shows.

    Attributes:
        results: A dictionary a run: `setting`, `objective`, `primary`,
            `secondary` (empty for none), `interleaved`, `seed`,
            `hyperparameters`, and every number of its `results.json`.
        reliability: `setting`, `objective`, `seed`, `calibrator`, `bin`,
            `confidence`, `accuracy` and `count`; NaN for an empty bin.
        shift: `setting`, `objective`, `seed` and the columns of a run's
            `shift.csv`.
        left_out: `folder`, `part` and `reason` of what could not be read.
    """

    results: list
    reliability: list
    shift: list
    left_out: list


def is_rows_folder(path):
    """Whether a folder holds the rows of a report."""
    return os.path.isfile(os.path.join(path, RESULTS))


def rows_files(rows):
    """Returns rows as the texts of CSV files, by name.

    Numbers are written so that they come back to the last bit.

    Args:
        rows: A `Rows`.
    """
    return {
        name: csv_text(part)
        for name, part in zip(FILES, rows, strict=True)
        if part
    }


def read_rows(folder):
    """Reads a folder of `rows_files`.

    Args:
        folder: With `results.csv`, and where there are any `reliability.csv`,
            `shift.csv` and `left_out.csv`.

    Returns:
        A `Rows`.
    """
    if not is_rows_folder(folder):
        raise ValueError(
            f"`folder` must hold {RESULTS}. Received: {os.fspath(folder)!r}"
        )
    return Rows(*(_read(os.path.join(folder, name), name) for name in FILES))


def csv_text(rows):
    """Returns dictionaries as CSV, with the columns of all of them.

    Example:
        >>> print(csv_text([{"seed": 0}, {"seed": 1, "ece": 0.25}]), end="")
        seed,ece
        0,
        1,0.25
    """
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _read(path, name):
    if not os.path.exists(path):
        return []
    with open(path, newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        missing = [
            key
            for key in _REQUIRED[name]
            if key not in (reader.fieldnames or ())
        ]
        if missing:
            raise ValueError(
                f"{name} must have the columns {', '.join(missing)}. "
                f"Received: {reader.fieldnames} in {path}"
            )
        return [_row(row, reader.line_num, path) for row in reader]


def _row(row, line, path):
    try:
        if None in row or None in row.values():
            raise ValueError("more or fewer values than columns")
        # A run without a number that others have has no such key.
        return {
            key: _value(key, text)
            for key, text in row.items()
            if text != "" or key in _TEXT
        }
    except (KeyError, ValueError) as error:
        raise ValueError(
            f"A row must hold what its columns say: {error}. "
            f"Received: line {line} of {path}"
        ) from error


def _value(key, text):
    if key in _TEXT:
        return text
    if key in _INTEGERS:
        return int(text)
    if key == "interleaved":
        return _TRUTHS[text]
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{key} is {text}")
    return value
