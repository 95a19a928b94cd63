"""The page of a report."""

import html
import importlib.resources

from caltrain_tf.report import sections
from caltrain_tf.report import table_files
from caltrain_tf.report.drawing import figure_html
from caltrain_tf.report.rows import Rows
from caltrain_tf.report.tables import to_html

GENERATOR = '<meta name="generator" content="caltrain_tf report">'
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
    body = [_overview(rows, settings)]
    if len(settings) > 1:
        body.append('<section id="all"><h2>All settings together</h2>')
        body += page.figures(sections.ACROSS, rows, "all settings")
        body.append("</section>")
    for number, setting in enumerate(settings, 1):
        part = _of_setting(rows, setting)
        body.append(
            f'<section id="setting-{number}"><h2>{html.escape(setting)}</h2>'
        )
        body.append(_runs_text(part.results))
        body += page.tables_of(setting)
        body += page.figures(sections.OF_A_SETTING, part, setting)
        body.append("</section>")
    body.append(_left_out(rows.left_out))
    body.append(page.not_shown_html())
    return _document(_title(rows.results), "\n".join(filter(None, body)))


class _Page:
    def __init__(self, tables, progress):
        self._tables, self._progress = tables, progress
        self._not_shown, self._count = [], 0

    def tables_of(self, setting):
        parts = []
        for kind in table_files.KINDS:
            table = self._tables.get(kind.name, {}).get(setting)
            if table is None:
                self._not_shown.append(
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
        parts = []
        for kind in kinds:
            self._progress(f"drawing {kind.title}, {setting}")
            drawn = kind.draw(rows)
            if drawn is None:
                self._not_shown.append(
                    (kind.title, setting, kind.needs, kind.command)
                )
                continue
            self._count += 1
            figure, caption = drawn
            parts.append(f"<h3>{html.escape(kind.title)}</h3>")
            parts.append(figure_html(figure, kind.title, caption, self._count))
        return parts

    def not_shown_html(self):
        if not self._not_shown:
            return ""
        items = "\n".join(
            f"<li>{html.escape(f'{title} ({setting}): needs {needs}.')} "
            f"<code>{html.escape(command)}</code></li>"
            for title, setting, needs, command in self._not_shown
        )
        return (
            '<section id="not-shown"><h2>Not shown</h2>\n<p>Not run, so '
            "neither drawn nor listed above; the command adds it.</p>\n"
            f"<ul>\n{items}\n</ul></section>"
        )


def _of_setting(rows, setting):
    return Rows(
        *(
            [row for row in part if row["setting"] == setting]
            for part in rows[:3]
        ),
        [],
    )


def _title(results):
    objectives = {row["objective"] for row in results}
    data = dict.fromkeys(row["setting"].split()[0] for row in results)
    return f"Calibration of {_count(objectives, 'objective')} on {_list(data)}"


def _overview(rows, settings):
    objectives = {row["objective"] for row in rows.results}
    text = (
        f"{_count(rows.results, 'run')}: "
        f"{_count(objectives, 'training objective')} in "
        f"{_count(settings, 'setting')}. Runs of one setting share everything "
        "but the seed, the objective and its hyperparameters. All numbers are "
        "of the test split; temperatures are fitted to the calibration split."
    )
    links = [("all", "All settings together")] if len(settings) > 1 else []
    links += [(f"setting-{n}", name) for n, name in enumerate(settings, 1)]
    items = "\n".join(
        f'<li><a href="#{name}">{html.escape(title)}</a></li>'
        for name, title in links
    )
    if rows.left_out:
        text += f" {_count(rows.left_out, 'part')} could not be read: see"
        note = f'{html.escape(text)} <a href="#left-out">what was left out</a>.'
    else:
        note = html.escape(text)
    return (
        f"<header><h1>{html.escape(_title(rows.results))}</h1>\n<p>{note}</p>"
        f'</header>\n<nav aria-label="Settings"><ul>\n{items}\n</ul></nav>'
    )


def _runs_text(results):
    seeds = {}
    for row in results:
        seeds.setdefault(row["objective"], []).append(row["seed"])
    by_seeds = {}
    for objective, numbers in seeds.items():
        by_seeds.setdefault(tuple(sorted(numbers)), []).append(objective)
    parts = [
        f"{_list(names)} with {'seeds' if len(numbers) > 1 else 'seed'} "
        f"{_list(map(str, numbers))}"
        for numbers, names in by_seeds.items()
    ]
    return f"<p>Trained here: {html.escape('; '.join(parts))}.</p>"


def _left_out(rows):
    if not rows:
        return ""
    items = "\n".join(
        f"<li><code>{html.escape(row['folder'])}</code>, "
        f"{html.escape(row['part'])}: {html.escape(row['reason'])}</li>"
        for row in rows
    )
    return (
        '<section id="left-out"><h2>Left out</h2>\n<p>These were found but '
        f"could not be read; no number above is of them.</p>\n<ul>\n{items}\n"
        "</ul></section>"
    )


def _count(items, name):
    number = len(items)
    return f"{number} {name}{'' if number == 1 else 's'}"


def _list(items):
    *head, last = items
    return f"{', '.join(head)} and {last}" if head else last


def _document(title, body):
    style = importlib.resources.files("caltrain_tf.report")
    style = (style / "style.css").read_text(encoding="utf-8")
    return "\n".join(
        (
            "<!DOCTYPE html>",
            '<html lang="en">',
            '<head><meta charset="utf-8">',
            GENERATOR,
            '<meta name="viewport" content="width=device-width, '
            'initial-scale=1">',
            f"<title>{html.escape(title)}</title>",
            f"<style>\n{style}</style>",
            "</head>",
            f"<body><main>\n{body}\n</main></body>",
            "</html>\n",
        )
    )
