"""The parts of a report's page that are text."""

import html
import importlib.resources

from caltrain_tf.figures import objective_label

GENERATOR = '<meta name="generator" content="caltrain_tf report">'


def page_title(results):
    """Says what is compared, and on which data."""
    objectives = {row["objective"] for row in results}
    data = dict.fromkeys(row["setting"].split()[0] for row in results)
    return f"Calibration of {_count(objectives, 'objective')} on {_list(data)}"


def overview(results, links):
    """The beginning of the page: what was run, and what follows.

    Args:
        results: All result rows.
        links: Pairs of a section's id and its title.
    """
    objectives = {row["objective"] for row in results}
    settings = {row["setting"] for row in results}
    text = (
        f"{_count(results, 'run')}: {_count(objectives, 'training objective')} "
        f"in {_count(settings, 'setting')}. Runs of one setting share "
        "everything but the seed, the objective and its hyperparameters. All "
        "numbers are of the test split; temperatures are fitted to the "
        "calibration split."
    )
    items = "\n".join(
        f'<li><a href="#{name}">{html.escape(title)}</a></li>'
        for name, title in links
    )
    return (
        f"<header><h1>{html.escape(page_title(results))}</h1>\n"
        f"<p>{html.escape(text)}</p></header>\n"
        f'<nav aria-label="Sections"><ul>\n{items}\n</ul></nav>'
    )


def runs_text(results):
    """Says which objectives of a setting were trained with which seeds."""
    seeds = {}
    for row in results:
        label = objective_label(row["objective"])
        seeds.setdefault(label, []).append(row["seed"])
    by_seeds = {}
    for objective, numbers in seeds.items():
        by_seeds.setdefault(tuple(sorted(numbers)), []).append(objective)
    parts = [
        f"{_list(names)} with {'seeds' if len(numbers) > 1 else 'seed'} "
        f"{_list(map(str, numbers))}"
        for numbers, names in by_seeds.items()
    ]
    return f"<p>Trained here: {html.escape('; '.join(parts))}.</p>"


def not_shown(parts):
    """The section on what was not run.

    Args:
        parts: Title, setting, what is needed and the command of each.
    """
    items = "\n".join(
        f"<li>{html.escape(f'{title} ({setting}): needs {needs}.')} "
        f"<code>{html.escape(command)}</code></li>"
        for title, setting, needs, command in parts
    )
    return (
        "<p>What was not run is neither drawn nor listed above. "
        "The command beside it adds it; RUNS is the folder of the runs, and "
        "CONFIG the configuration that they share.</p>"
        f"\n<ul>\n{items}\n</ul>"
    )


def left_out(rows):
    """The section on what could not be read."""
    items = "\n".join(
        f"<li><code>{html.escape(row['folder'])}</code>, "
        f"{html.escape(row['part'])}: {html.escape(row['reason'])}</li>"
        for row in rows
    )
    return (
        "<p>These were found but could not be read; no number above is of "
        f"them.</p>\n<ul>\n{items}\n</ul>"
    )


def _count(items, name):
    number = len(items)
    return f"{number} {name}{'' if number == 1 else 's'}"


def _list(items):
    *head, last = items
    return f"{', '.join(head)} and {last}" if head else last


def document(title, body):
    """The whole page around its body."""
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
