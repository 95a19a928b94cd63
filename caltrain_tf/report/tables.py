"""Tables of estimates, as CSV, Markdown, LaTeX, HTML and plain text."""

import html
import math
from typing import NamedTuple

from caltrain_tf.report.rows import csv_text

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": r"$-$",
    "≤": r"$\leq$",
    "†": r"$\dagger$",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}
# What Markdown could take for markup, in a cell of a table too.
_MARKDOWN = "\\`*_|<>[]"


class Estimate(NamedTuple):
    """A mean, and its standard error or NaN."""

    mean: float
    error: float = math.nan


class Column(NamedTuple):
    """A column: its name in files, its title, and how numbers are shown."""

    key: str
    title: str
    percent: bool = False
    digits: int = 2


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
    if isinstance(value, str | int):
        return str(value)
    if isinstance(value, float):
        value = Estimate(value)
    factor = 100 if column.percent else 1
    text, error = (f"{factor * part:.{column.digits}f}" for part in value)
    # One hyphen for all negative numbers would be read as a dash.
    text = text.replace("-", "−")
    return text if math.isnan(value.error) else f"{text} ± {error}"


def to_csv(tables):
    """Returns tables as one CSV, numbers as they are, not in percent.

    Args:
        tables: From settings to `Table`s.
    """
    lines = []
    for setting, table in tables.items():
        for index, row in enumerate(table.rows):
            line = {"setting": setting}
            for column in table.columns:
                value = row.get(column.key)
                if isinstance(value, Estimate):
                    line[column.key] = value.mean
                    line[f"{column.key}_error"] = (
                        "" if math.isnan(value.error) else value.error
                    )
                else:
                    line[column.key] = "" if value is None else value
            line["best"] = " ".join(
                c.key for c in table.columns if (index, c.key) in table.best
            )
            lines.append(line)
    return csv_text(lines)


def to_markdown(tables, title, note=""):
    """Returns tables as Markdown, the best in bold.

    Args:
        tables: From settings to `Table`s.
        title: The heading.
        note: What is written below.
    """
    lines = [f"# {_markdown(title)}"]
    for setting, table in tables.items():
        lines += ["", f"## {_markdown(setting)}", ""]
        titles = [_markdown(column.title) for column in table.columns]
        lines.append(_pipes(titles))
        lines.append(
            _pipes("---" if text else "---:" for text in _are_texts(table))
        )
        for cells in _cells(table):
            lines.append(
                _pipes(
                    f"**{_markdown(text)}**" if best else _markdown(text)
                    for text, best in cells
                )
            )
    if note:
        lines += ["", _markdown(note)]
    return "\n".join(lines) + "\n"


def to_latex(tables, title, note=""):
    r"""Returns tables as LaTeX for the package booktabs, the best in bold.

    Args:
        tables: From settings to `Table`s.
        title: The captions' beginning.
        note: The captions' end.
    """
    parts = ["% Needs \\usepackage{booktabs}."]
    for setting, table in tables.items():
        titles = [latex_escape(column.title) for column in table.columns]
        caption = latex_escape(f"{title}, {setting}. {note}".strip())
        lines = [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{caption}}}",
            rf"\begin{{tabular}}{{{_latex_columns(table)}}}",
            r"\toprule",
            " & ".join(titles) + r" \\",
            r"\midrule",
        ]
        for cells in _cells(table):
            texts = [
                rf"\textbf{{{latex_escape(text)}}}"
                if best
                else latex_escape(text)
                for text, best in cells
            ]
            lines.append(" & ".join(texts) + r" \\")
        lines += [r"\bottomrule", r"\end{tabular}", r"\end{table}"]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def to_html(table, caption):
    """Returns a table as HTML that scrolls by itself where it is too wide.

    Args:
        table: A `Table`.
        caption: What is written above it, a text.
    """
    kinds = [' class="text"' if text else "" for text in _are_texts(table)]
    heads = "".join(
        f'<th scope="col"{kind}>{html.escape(column.title)}</th>'
        for column, kind in zip(table.columns, kinds, strict=True)
    )
    lines = [
        # Focusable, so that keys scroll it too.
        f'<div class="scroll" role="region" tabindex="0" '
        f'aria-label="{html.escape(caption)}">',
        f"<table><caption>{html.escape(caption)}</caption>",
        f"<thead><tr>{heads}</tr></thead>",
        "<tbody>",
    ]
    for index, cells in enumerate(_cells(table)):
        (name, _), *others = cells
        data = "".join(
            f"<td{kind}><strong>{html.escape(text)}</strong></td>"
            if best
            else f"<td{kind}>{html.escape(text)}</td>"
            for (text, best), kind in zip(others, kinds[1:], strict=True)
        )
        kind = ' class="aside"' if index in table.aside else ""
        lines.append(
            f'<tr{kind}><th scope="row">{html.escape(name)}</th>{data}</tr>'
        )
    return "\n".join([*lines, "</tbody></table></div>"])


def to_text(table):
    """Returns a table for the terminal; `*` marks the best."""
    lines = [[column.title for column in table.columns]]
    for cells in _cells(table):
        lines.append([f"{text}{'*' if best else ''}" for text, best in cells])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if text else cell.rjust(width)
            for cell, width, text in zip(
                line, widths, _are_texts(table), strict=True
            )
        ).rstrip()
        for line in lines
    )


def latex_escape(text):
    r"""Returns a text that LaTeX sets as it stands.

    Example:
        >>> print(latex_escape("sb_ece & 5%"))
        sb\_ece \& 5\%
    """
    return "".join(_LATEX.get(character, character) for character in text)


def _cells(table):
    """Pairs (text, whether it is the best) of every row."""
    for index, row in enumerate(table.rows):
        texts = [cell_text(c, row.get(c.key)) for c in table.columns]
        if index in table.aside:
            texts[0] += " †"
        yield [
            (text, (index, column.key) in table.best)
            for text, column in zip(texts, table.columns, strict=True)
        ]


def _are_texts(table):
    """Whether each column holds texts, which start at its left."""
    return [
        all(isinstance(row.get(column.key), str) for row in table.rows)
        for column in table.columns
    ]


def _latex_columns(table):
    return "".join("l" if text else "r" for text in _are_texts(table))


def _markdown(text):
    return "".join(f"\\{c}" if c in _MARKDOWN else c for c in text)


def _pipes(cells):
    return f"| {' | '.join(cells)} |"
