"""Tables of estimates, and how their cells are shown."""

import math
from typing import NamedTuple

from caltrain_tf.figures import objective_label


class Estimate(NamedTuple):
    """A mean, and its standard error or NaN."""

    mean: float
    error: float = math.nan


class Column(NamedTuple):
    """A column: its name in files, its title, and how values are shown."""

    key: str
    title: str
    percent: bool = False
    digits: int = 2
    objective: bool = False


class Table(NamedTuple):
    """A table of one setting.

    Attributes:
        columns: `Column`s.
        rows: Dictionaries from the columns' keys to texts, integers, floats or
            `Estimate`s; a missing key is an empty cell.
        best: Pairs (index of a row, key) that are marked.
        aside: Indices of rows that do not compete.
    """

    columns: tuple
    rows: list
    best: frozenset = frozenset()
    aside: frozenset = frozenset()


def cell_text(column, value):
    """Returns a cell as it is shown.

    Example:
        >>> cell_text(Column("ece", "ECE", percent=True), Estimate(0.125, 0.01))
        '12.50 ± 1.00'
    """
    if value is None:
        return ""
    if column.objective:
        return objective_label(value)
    if isinstance(value, str | int):
        return str(value)
    if isinstance(value, float):
        value = Estimate(value)
    if math.isnan(value.mean):
        return "–"
    factor = 100 if column.percent else 1
    text, error = (f"{factor * part:.{column.digits}f}" for part in value)
    text = text.replace("-", "−")
    return text if math.isnan(value.error) else f"{text} ± {error}"


def to_text(table):
    """Returns a table for the terminal; `*` marks the best."""
    lines = [[column.title for column in table.columns]]
    for line in cells(table):
        lines.append([f"{text}{'*' if best else ''}" for text, best in line])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if text else cell.rjust(width)
            for cell, width, text in zip(
                line, widths, are_texts(table), strict=True
            )
        ).rstrip()
        for line in lines
    )


def cells(table):
    """Pairs (text, whether it is the best) of every row."""
    for index, row in enumerate(table.rows):
        texts = [cell_text(c, row.get(c.key)) for c in table.columns]
        if index in table.aside:
            texts[0] += " †"
        yield [
            (text, (index, column.key) in table.best)
            for text, column in zip(texts, table.columns, strict=True)
        ]


def are_texts(table):
    """Whether each column holds texts, which start at its left."""
    return [
        all(isinstance(row.get(column.key), str) for row in table.rows)
        for column in table.columns
    ]
