"""The page of a report."""

import html

from caltrain_tf.report import page_parts
from caltrain_tf.report import sections
from caltrain_tf.report import table_files
from caltrain_tf.report.drawing import figure_html
from caltrain_tf.report.rows import Rows
from caltrain_tf.report.table_formats import to_html

# Tables that are read now and then.
_FOLDED = ("significance_ts", "significance_best", "hyperparameters")


def report_page(rows, tables, progress=lambda text: None):
    """Returns the page, with everything inside it.

    Args:
        rows: A `Rows`.
        tables: Of `build_tables`.
        progress: Called with a text for every figure.
    """
    page = _Page(tables, progress)
    settings = list(dict.fromkeys(row["setting"] for row in rows.results))
    parts = []
    if len(settings) > 1:
        drawn = page.figures(sections.ACROSS, rows, "all settings")
        parts.append(("all", "All settings together", drawn))
    for number, setting in enumerate(settings, 1):
        part = _of_setting(rows, setting)
        content = [page_parts.runs_text(part.results), *page.tables_of(setting)]
        content += page.figures(sections.OF_A_SETTING, part, setting)
        parts.append((f"setting-{number}", setting, content))
    if rows.left_out:
        content = page_parts.left_out(rows.left_out)
        parts.append(("left-out", "Left out", [content]))
    if page.not_shown:
        content = page_parts.not_shown(page.not_shown)
        parts.append(("not-shown", "Not shown", [content]))
    links = [(name, title) for name, title, content in parts if content]
    body = [page_parts.overview(rows.results, links)]
    for name, title, content in parts:
        if content:
            body.append(
                f'<section id="{name}"><h2>{html.escape(title)}</h2>\n'
                + "\n".join(content)
                + "\n</section>"
            )
    title = page_parts.page_title(rows.results)
    return page_parts.document(title, "\n".join(body))


class _Page:
    def __init__(self, tables, progress):
        self._tables, self._progress = tables, progress
        self.not_shown, self._count = [], 0

    def tables_of(self, setting):
        parts = []
        for kind in table_files.KINDS:
            table = self._tables.get(kind.name, {}).get(setting)
            if table is None:
                self.not_shown.append(
                    (kind.title, setting, *sections.TABLE_NEEDS[kind.name])
                )
                continue
            note = f'<p class="note">{html.escape(kind.note)}</p>'
            content = f"{to_html(table, kind.title)}\n{note}"
            if kind.name in _FOLDED:
                title = html.escape(kind.title)
                content = (
                    f"<details><summary>{title}</summary>\n{content}</details>"
                )
            else:
                content = f"<h3>{html.escape(kind.title)}</h3>\n{content}"
            parts.append(content)
        return parts

    def figures(self, kinds, rows, setting):
        parts = ["<h3>Figures</h3>", '<div class="figures">']
        for kind in kinds:
            self._progress(f"drawing {kind.title}, {setting}")
            drawn = kind.draw(rows)
            if drawn is None:
                self.not_shown.append(
                    (kind.title, setting, kind.needs, kind.command)
                )
                continue
            self._count += 1
            figure, caption = drawn
            parts.append(figure_html(figure, kind.title, caption, self._count))
        return [*parts, "</div>"] if len(parts) > 2 else []


def _of_setting(rows, setting):
    return Rows(
        *(
            [row for row in part if row["setting"] == setting]
            for part in rows[:3]
        ),
        [],
    )
