"""Rows of the shift benchmark as a file, `shift.csv`."""

import csv
import io
import os

COLUMNS = (
    "dataset",
    "corruption",
    "severity",
    "calibrator",
    "metric",
    "value",
)


def shift_csv(rows):
    """Returns rows as the text of `shift.csv`."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def read_shift_csv(path):
    """Reads the rows of a `shift.csv`.

    Args:
        path: The file.

    Returns:
        Rows as of `evaluate_shift`.
    """
    with open(os.fspath(path), newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise ValueError(
                f"`path` must be a file with the columns {COLUMNS}. "
                f"Received: {reader.fieldnames} in {path}"
            )
        return [
            {
                **row,
                "severity": int(row["severity"]),
                "value": float(row["value"]),
            }
            for row in reader
        ]
