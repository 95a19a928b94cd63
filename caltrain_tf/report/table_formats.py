"""Tables as CSV, Markdown, LaTeX and HTML."""

import html
import math

from caltrain_tf.report.rows import csv_text
from caltrain_tf.report.tables import Estimate
from caltrain_tf.report.tables import are_texts
from caltrain_tf.report.tables import cells

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": r"$-$",
    "–": "--",
    "†": r"$\dagger$",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}
# What Markdown could take for markup, in a cell of a table too.
_MARKDOWN = "\\`*_|<>[]"


def to_csv(tables):
    """Returns tables as one CSV, numbers as they are, not in percent.

    Args:
        tables: From settings to `Table`s.
    """
    rows = [row for table in tables.values() for row in table.rows]
    estimated = {
        key
        for row in rows
        for key, value in row.items()
        if isinstance(value, Estimate)
    }
    has_marks = any(table.best or table.aside for table in tables.values())
    lines = []
    for setting, table in tables.items():
        for index, row in enumerate(table.rows):
            line = {"setting": setting}
            for key in (column.key for column in table.columns):
                value = row.get(key)
                if key in estimated:
                    value = Estimate(math.nan) if value is None else value
                    line[key] = _plain(value.mean)
                    line[f"{key}_error"] = _plain(value.error)
                else:
                    line[key] = _plain(value)
            if has_marks:
                line["best"] = " ".join(
                    c.key for c in table.columns if (index, c.key) in table.best
                )
                line["too_inaccurate"] = index in table.aside
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
            _pipes("---" if text else "---:" for text in are_texts(table))
        )
        for line in cells(table):
            lines.append(
                _pipes(
                    f"**{_markdown(text)}**" if best else _markdown(text)
                    for text, best in line
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
        for line in cells(table):
            texts = [
                rf"\textbf{{{latex_escape(text)}}}"
                if best
                else latex_escape(text)
                for text, best in line
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
    kinds = [' class="text"' if text else "" for text in are_texts(table)]
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
    for index, line in enumerate(cells(table)):
        (name, _), *others = line
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


def latex_escape(text):
    r"""Returns a text that LaTeX sets as it stands.

    Example:
        >>> print(latex_escape("sb_ece & 5%"))
        sb\_ece \& 5\%
    """
    return "".join(_LATEX.get(character, character) for character in text)


def _plain(value):
    if value is None or isinstance(value, float) and math.isnan(value):
        return ""
    return value


def _latex_columns(table):
    return "".join("l" if text else "r" for text in are_texts(table))


def _markdown(text):
    return "".join(f"\\{c}" if c in _MARKDOWN else c for c in text)


def _pipes(cells):
    return f"| {' | '.join(cells)} |"
