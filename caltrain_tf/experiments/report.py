"""Writes a report: a self-contained page, and its rows and tables as files."""

import base64
import datetime
import importlib
import io
import math
import os
from collections.abc import Callable
from typing import NamedTuple

import jinja2
from PIL import Image

from caltrain_tf import files
from caltrain_tf.experiments import figures, statistics
from caltrain_tf.experiments import tables as tables_
from caltrain_tf.experiments.collect import (
    ROWS_FILES,
    data_label,
    rows_files,
    setting_title,
)
from caltrain_tf.experiments.findings import SHIFT_COMMAND, findings, word_list
from caltrain_tf.experiments.tables import ECE, common_shift

# Text by which an earlier report is recognised.
GENERATOR = "caltrain_tf report"
# CSS pixels per inch, and image pixels per CSS pixel.
_PIXELS, _DOTS = 96, 2

_TRAIN = (
    "python baselines/study.py --config=CONFIG --output_dir=RUNS "
    "--objectives=nll,nll+sb_ece --seeds=0,1,2"
)
_DIRICHLET = "python baselines/report.py RUNS --dirichlet"
_TWO_SEEDS = (
    "a primary loss alone and with a secondary loss, two common seeds or more",
    _TRAIN,
)
_RESULTS = "results.json with this measure", _TRAIN
_SHIFTED = "the shift benchmark of the runs", SHIFT_COMMAND
_OUTPUTS = "predictions/calibration.npz and predictions/test.npz", SHIFT_COMMAND
# Tables before and after the figures: their titles, the data that they need,
# and the command that computes the data.
_FIRST = {
    "results": ("Accuracy and calibration error", *_RESULTS),
    "significance": ("Significance of a secondary loss", *_TWO_SEEDS),
    "shift": ("ECE under shift", *_SHIFTED),
}
_MORE = {
    "measures": ("Other measures", *_RESULTS),
    "memorisation": ("Is the training set memorised?", *_RESULTS),
    "dirichlet": (
        "Dirichlet calibration",
        "Dirichlet calibration of the runs",
        _DIRICHLET,
    ),
    "significance_ts": (
        "Significance of a secondary loss after temperature scaling",
        *_TWO_SEEDS,
    ),
    "significance_best": (
        "Significance against the lowest ECE",
        "two objectives with two common seeds or more",
        _TRAIN,
    ),
    "hyperparameters": ("What every objective was trained with", *_RESULTS),
}


def write_report(
    rows,
    output,
    *,
    command=None,
    overwrite=False,
    progress=lambda text: None,
):
    """Writes a self-contained page, and its rows and tables next to it.

    Next to `report.html` are `report_rows/`, which `collect` reads to make the
    same page again, and `report_tables/` with every table as CSV, Markdown and
    LaTeX. The footer has the current date, or that of `SOURCE_DATE_EPOCH` if it
    is set for reproducible builds.

    Args:
        rows: A `Rows`, as returned by `collect`.
        output: The page's path, local or in a bucket.
        command: The command that makes the page, for the footer.
        overwrite: Whether to replace files that are not of an earlier report.
        progress: Called with a text for every figure.

    Returns:
        `(text, paths)`: the main tables for the terminal, and the paths of all
        files.
    """
    output = files.as_path(output)
    # Checked before anything is drawn.
    is_report = _is_report(output)
    if not overwrite and output.exists() and not is_report:
        raise ValueError(
            "`output` must not replace a file that is not of an earlier "
            "report, unless `overwrite` says so. "
            f"Received: {os.fspath(output)!r}, which exists"
        )
    tables = tables_.build_tables(rows)
    page = _page(rows, tables, command, progress)
    paths = _write(
        output,
        page,
        rows_files(rows),
        tables_.table_files(tables),
        overwrite or is_report,
    )
    text = "\n\n".join(
        f"{setting}\n{tables_.to_text(table)}"
        for setting, table in tables["results"].items()
    )
    return text, paths


class Drawing(NamedTuple):
    """A figure that a report may have.

    Attributes:
        title: Title of the figure.
        draw: Function from the `Rows` of one setting to a figure and its
            caption, or to None if the rows lack the data.
        needs: The data that the figure needs, and the command that computes
            them.
    """

    title: str
    draw: Callable
    needs: tuple


def _effects(rows):
    metrics = [key for key in ("ece", "ece_ts") if _has(rows.results, key)]
    effects = [
        effect
        for metric in metrics
        for effect in statistics.effect_sizes(rows.results, metric)
        if not math.isnan(effect["d"])
    ]
    if not effects:
        return None
    pairs = len({(row["setting"], row["primary"]) for row in effects})
    caption = (
        "Cohen's d of every secondary loss: the mean ECE of the primary loss "
        "alone minus that with the secondary loss, over the standard deviation "
        "of the two samples of seeds pooled; without scaling, and after "
        "temperature scaling. Bars are means of d over "
        f"{_count(pairs, 'pair')} of a setting and a primary loss, marks are "
        f"one of them each; {_seeds(rows.results)}. A d of 0.8 is called "
        "large, one of 2 huge. With few seeds d is itself uncertain, and "
        f"biased upwards. {ECE}"
    )
    return figures.effect_size_bars(effects), caption


def _bars(metric, what):
    def draw(rows):
        if not _has(rows.results, metric):
            return None
        summaries = statistics.summarize_results(rows.results, [metric])
        caption = (
            f"{what} of the test split by objective, with its accuracy under "
            "each bar. Means over seeds, bars ±1 standard error over them; "
            f"{_seeds(rows.results)}. {ECE}"
        )
        return figures.error_bars_by_objective(summaries, metric), caption

    return draw


def _uncertainty(rows):
    if not _has(rows.results, "average_uncertainty"):
        return None
    caption = (
        "ECE of the test split, without scaling, against the mean entropy of "
        "the predicted probabilities. Small points are runs, large ones means "
        f"over seeds; {_seeds(rows.results)}. {ECE}"
    )
    return figures.error_against_uncertainty(rows.results), caption


def _tradeoff(metric, what):
    def draw(rows):
        here = rows.results
        here = here[here[metric].notna()] if metric in here else here[:0]
        if here["objective"].nunique() < 2:
            return None
        caption = (
            f"{what} against accuracy, of the test split. Small points are "
            f"runs, large ones means over seeds; {_seeds(here)}. The line is "
            "the Pareto front of the means: no objective is both more accurate "
            f"and better calibrated than one on it. {ECE}"
        )
        return figures.accuracy_error_tradeoff(here, metric), caption

    return draw


def _confidence(calibrator):
    def draw(rows):
        here = rows.reliability
        here = here[here["calibrator"] == calibrator]
        if here.empty:
            return None
        caption = (
            "Share of correct predictions against mean confidence (the largest "
            "probability) in 15 bins of equal width, of the test predictions "
            f"of all seeds together; {_seeds(here)}. Bins of fewer than 30 "
            "predictions are faint points beside the line. Under the diagonal "
            "a network is over-confident, above it under-confident."
        )
        return figures.accuracy_against_confidence(here, calibrator), caption

    return draw


def _reliability(calibrator):
    key = "ece" if calibrator == "none" else f"ece_{calibrator}"

    def draw(rows):
        here = rows.reliability
        here = here[here["calibrator"] == calibrator]
        if here.empty:
            return None
        errors = {}
        if _has(rows.results, key):
            errors = {
                summary["objective"]: summary["mean"][key]
                for summary in statistics.summarize_results(rows.results, [key])
                if key in summary["mean"]
            }
        caption = (
            "Bars are the accuracy of the test predictions in 15 bins of equal "
            "width, of all seeds together; the orange gap leads to their mean "
            "confidence. Bins of fewer than 30 predictions are faint. Beneath "
            "is the share of the predictions in each bin, with their mean "
            "confidence (line) and accuracy (dashed). The ECE above each is "
            "the mean over seeds, l2 over 15 bins of equal mass; "
            f"{_seeds(here)}."
        )
        return figures.reliability_from_rows(here, calibrator, errors), caption

    return draw


def _shifted(calibrator, metric="ece"):
    what = "Accuracy" if metric == "accuracy" else "ECE"

    def draw(rows):
        means, corruptions = common_shift(rows.shift, calibrator, metric)
        if not means:
            return None
        images = tables_.shift_images(rows.results)
        of_images = f", {images} images each" if images else ""
        caption = (
            f"{what} on corrupted test sets{of_images}, at each severity the "
            f"mean over {_count(corruptions, 'corruption')}, those that every "
            "run was measured on; the clean set is of the same images. "
            "Temperatures are fitted to the clean calibration split. Lines are "
            "means over seeds, bars ±1 standard error over them; "
            f"{_seeds(rows.shift)}. {ECE if metric == 'ece' else ''}"
        )
        return figures.shift_lines(means, metric), caption.rstrip()

    return draw


_EFFECTS = Drawing(
    "Effect sizes of the secondary losses (Cohen's d)", _effects, _TWO_SEEDS
)


def _drawings(calibrators):
    """Returns the figures of a setting with these calibrators under shift."""
    ts, two = _after("ts"), ("two objectives", _TRAIN)
    # On a wide screen, pairs of figures are side by side.
    return [
        Drawing("ECE by objective", _bars("ece", "ECE"), _RESULTS),
        Drawing(f"ECE by objective{ts}", _bars("ece_ts", f"ECE{ts}"), _RESULTS),
        Drawing("Accuracy against confidence", _confidence("none"), _OUTPUTS),
        Drawing(
            f"Accuracy against confidence{ts}", _confidence("ts"), _OUTPUTS
        ),
        *(
            Drawing(f"ECE under shift{_after(name)}", _shifted(name), _SHIFTED)
            for name in calibrators
        ),
        Drawing("Accuracy under shift", _shifted("none", "accuracy"), _SHIFTED),
        Drawing("Accuracy-ECE trade-off", _tradeoff("ece", "ECE"), two),
        Drawing(
            f"Accuracy-ECE trade-off{ts}", _tradeoff("ece_ts", f"ECE{ts}"), two
        ),
        _EFFECTS,
        Drawing("ECE against average uncertainty", _uncertainty, _RESULTS),
        Drawing("Reliability", _reliability("none"), _OUTPUTS),
        Drawing(f"Reliability{ts}", _reliability("ts"), _OUTPUTS),
    ]


def _after(calibrator):
    if calibrator == "none":
        return ""
    if calibrator == "ts":
        return ", after temperature scaling (TS)"
    return f", with {figures.calibrator_label(calibrator)}"


def _page(rows, tables, command, progress):
    """Returns the self-contained page as text."""
    settings = list(rows.results["setting"].unique())
    missing, numbers = {}, iter(range(1, 10_000))

    def table_of(name, title, needs, how, setting):
        table = tables.get(name, {}).get(setting)
        if table is None:
            missing.setdefault((title, needs, how), []).append(setting)
            return None
        return _table_context(table)

    def drawn(drawings, part, setting):
        made = []
        for drawing in drawings:
            progress(f"drawing {drawing.title}, {setting}")
            result = drawing.draw(part)
            if result is None:
                key = (drawing.title, *drawing.needs)
                missing.setdefault(key, []).append(setting)
                continue
            figure, caption = result
            made.append(
                {
                    "number": next(numbers),
                    "title": drawing.title,
                    "caption": caption,
                    **_image(figure),
                }
            )
        return made

    sections = []
    for number, setting in enumerate(settings, 1):
        part = tables_.of_setting(rows, setting)
        calibrators = list(part.shift["calibrator"].unique()) or ["none"]
        first, more = (
            [table_of(name, *about, setting) for name, about in kinds.items()]
            for kinds in (_FIRST, _MORE)
        )
        sections.append(
            {
                "id": f"setting-{number}",
                "title": setting_title(setting),
                "setting": setting,
                "trained": _trained(part.results),
                "findings": findings(part.results, part.shift),
                "tables": list(filter(None, first)),
                "more": list(filter(None, more)),
                "figures": drawn(_drawings(calibrators), part, setting),
            }
        )
    across = []
    if len(settings) > 1:
        across = drawn([_EFFECTS], rows, "all settings")
    objectives = rows.results["objective"].nunique()
    data = dict.fromkeys(setting.split()[0] for setting in settings)
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("caltrain_tf", "experiments"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    package = importlib.import_module(__name__.partition(".")[0])
    return environment.get_template("report.html.j2").render(
        generator=GENERATOR,
        title=f"Calibration of {_count(objectives, 'objective')} on "
        f"{word_list([data_label(name) for name in data])}",
        runs=_count(len(rows.results), "run"),
        objectives=_count(objectives, "training objective"),
        settings=_count(len(settings), "setting"),
        single_runs=rows.results.groupby(["setting", "objective"]).size().max()
        == 1,
        sections=sections,
        across=across,
        left_out=rows.left_out.to_dict("records"),
        missing=[
            (title, where, needs, how)
            for (title, needs, how), where in missing.items()
        ],
        date=_date(),
        version=package.__version__,
        command=command,
    )


def _table_context(table):
    """Returns the variables of a table for the template."""
    kinds = tables_.is_text(table)
    columns = list(table.texts)
    lines, group = [], None
    for texts, best, aside in zip(
        table.texts.to_numpy(), table.best.to_numpy(), table.aside, strict=True
    ):
        cells = list(zip(columns, texts, best, kinds, strict=True))
        here = dict(zip(columns, texts, strict=True)).get(table.group)
        lines.append(
            {
                "group": here if here != group else None,
                "aside": aside,
                "cells": [cell for cell in cells if cell[0] != table.group],
            }
        )
        group = here
    return {
        "title": table.title,
        "note": table.note,
        "columns": [
            (column, kind)
            for column, kind in zip(columns, kinds, strict=True)
            if column != table.group
        ],
        "lines": lines,
    }


def _image(figure):
    """Returns a figure as the data URL of a high-resolution PNG image."""
    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, dpi=_DOTS * _PIXELS, facecolor="white")
    # A third of the size of matplotlib's file, without a visible difference.
    image = Image.open(drawn).convert("RGB").quantize(128, dither=0)
    image.save(small, "png", optimize=True)
    data = base64.b64encode(small.getvalue()).decode()
    return {
        "source": f"data:image/png;base64,{data}",
        "width": round(image.width / _DOTS),
        "height": round(image.height / _DOTS),
    }


def _write(output, page, rows, tables, overwrite):
    """Writes the rows and tables of the page, and then the page."""
    folders = {
        output.with_name(f"{output.stem}_rows"): (rows, ROWS_FILES),
        output.with_name(f"{output.stem}_tables"): (
            tables,
            tables_.table_names(),
        ),
    }
    texts = {
        folder / name: text
        for folder, (made, _) in folders.items()
        for name, text in made.items()
    }
    stale = [
        folder / name
        for folder, (made, names) in folders.items()
        for name in names
        if name not in made and (folder / name).exists()
    ]
    if not overwrite:
        differing = [
            path
            for path, text in texts.items()
            if path.exists() and path.read_bytes() != text.encode()
        ]
        if differing or stale:
            raise ValueError(
                "`output` must not replace files that are not of an earlier "
                "report, unless `overwrite` says so. Received: "
                f"{list(map(os.fspath, differing + stale))}, which exist"
            )
    for path in stale:
        path.unlink()
    # The page is written last, so that all files exist if it does.
    for path, text in {**texts, output: page}.items():
        files.write_text(path, text)
    return [*map(os.fspath, texts), os.fspath(output)]


def _is_report(path):
    if path.is_dir():
        raise ValueError(
            f"`output` must be a file. Received: the folder {os.fspath(path)!r}"
        )
    return path.exists() and GENERATOR.encode() in path.read_bytes()[:2000]


def _date():
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    utc = datetime.UTC
    now = datetime.datetime.now(utc)
    date = datetime.datetime.fromtimestamp(int(epoch), utc) if epoch else now
    return date.strftime("%Y-%m-%d")


def _trained(results):
    """Returns which objectives were trained with which seeds, as text."""
    seeds = results.groupby("objective", sort=False)["seed"].agg(
        lambda numbers: tuple(sorted(numbers))
    )
    parts = [
        f"{word_list(list(map(figures.objective_label, names)))} with "
        f"{'seeds' if len(numbers) > 1 else 'seed'} "
        f"{word_list(list(map(str, numbers)))}"
        for numbers, names in seeds.groupby(seeds, sort=False).groups.items()
    ]
    return "; ".join(parts)


def _seeds(rows):
    """Returns the number of seeds per objective as text."""
    counts = rows.groupby(["setting", "objective"])["seed"].nunique()
    least, most = counts.min(), counts.max()
    number = str(least) if least == most else f"{least} to {most}"
    return f"{number} {'seed' if most == 1 else 'seeds'} per objective"


def _has(results, key):
    return key in results and results[key].notna().any()


def _count(number, name):
    return f"{number} {name}{'' if number == 1 else 's'}"
