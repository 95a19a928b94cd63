"""Writes a report: a self-contained page, and its rows and tables as files."""

import base64
import datetime
import importlib
import io
import os

import jinja2
import pandas as pd
from PIL import Image

from caltrain_tf import files
from caltrain_tf.experiments import collect, figures, statistics, tables
from caltrain_tf.experiments.figures import objective_label

# Text by which an earlier report is recognised.
GENERATOR = "caltrain_tf report"
# CSS pixels per inch, and image pixels per CSS pixel.
_PIXELS, _DOTS = 96, 2
# Tables before the figures; the others are folded, after them.
_FIRST = ("results", "significance", "shift")
_TABLES = (
    *(*_FIRST, "measures", "memorisation", "dirichlet", "significance_ts"),
    *("significance_best", "hyperparameters"),
)
_OVER_SEEDS = "Means over seeds, bars ±1 standard error."
_POINTS = "Small points are runs, large ones means over seeds."
_EFFECTS = (
    "Effect sizes of the secondary losses (Cohen's d)",
    "The mean ECE of the primary loss alone minus that with the secondary "
    "loss, over the pooled standard deviation of the seeds. Bars are means "
    "over settings and primary losses, marks are one of them each; interleaved "
    "training counts with the others. With few seeds d is uncertain, and "
    f"biased upwards. {tables.ECE}",
)


def write_report(
    rows, output, *, command="", overwrite=False, progress=lambda text: None
):
    """Writes a self-contained page, and its rows and tables next to it.

    Next to `report.html` are `report_rows/`, which `collect` reads to make the
    same page again, and `report_tables/` with every table as CSV, Markdown and
    LaTeX. The footer has the current date, or that of `SOURCE_DATE_EPOCH`.

    Args:
        rows: A `collect.Rows`.
        output: The page's path, local or in a bucket.
        command: The command that makes the page, for the footer.
        overwrite: Whether to replace files that are not of an earlier report.
        progress: Called with a text for every setting.

    Returns:
        `(text, paths)`: the main tables for the terminal, and the paths of all
        files.
    """
    output = files.as_path(output)
    folders = [
        output.with_name(f"{output.stem}_{k}") for k in ("rows", "tables")
    ]
    _check_output(output, folders, overwrite)
    settings = {
        setting: collect.of_setting(rows, setting)
        for setting in rows.results["setting"].unique()
    }
    made = {s: tables.build_tables(part) for s, part in settings.items()}
    page = _page(rows, settings, made, command, progress)
    paths = collect.write_rows(rows, folders[0])
    for name in _TABLES:
        here = {s: built[name] for s, built in made.items() if name in built}
        for ending, write in (
            ("csv", tables.to_csv),
            ("md", tables.to_markdown),
            ("tex", tables.to_latex),
        ):
            path = folders[1] / f"{name}.{ending}"
            if here:
                files.write_text(path, write(here))
                paths.append(path)
            else:
                # Of an earlier report.
                path.unlink(missing_ok=True)
    # The page is written last, so that all files exist if it does.
    files.write_text(output, page)
    text = "\n\n".join(
        f"{setting}\n{tables.to_text(built['results'])}"
        for setting, built in made.items()
    )
    return text, [*map(os.fspath, paths), os.fspath(output)]


def headline(results):
    """Returns what the line on top says of one setting.

    Returns:
        `best`, the objective with the lowest ECE that gives up less than 1%
        accuracy, or None if that cannot be decided, with the `reason`. With it,
        the numbers of the objective, those of its primary loss alone, and the
        paired test between them.
    """
    summary = statistics.summarize(results, ["ece"])
    if summary.competes is None:
        largest = tables.text_of(summary.error["accuracy"].max())
        return {
            "best": None,
            "reason": "the accuracies are too uncertain (standard errors up "
            f"to {largest}%) to tell which objectives give up less than 1% "
            "accuracy; more seeds or longer training decide it",
        }
    if not summary.best["ece"].any():
        return {
            "best": None,
            "reason": "it takes two objectives with two seeds",
        }
    best = summary.best["ece"].idxmax()

    def numbers(name):
        mean, error = summary.mean.loc[name], summary.error.loc[name]
        return {
            "name": objective_label(name),
            **{
                k: tables.text_of(mean[k], error[k])
                for k in ("ece", "accuracy")
            },
        }

    line = {"best": numbers(best), "alone": None, "test": None}
    primary = figures.split_objective(best)[0]
    if primary != best and primary in summary.mean.index:
        line["alone"] = numbers(primary)
        tests = statistics.paired_tests(results).set_index("objective")
        if best in tests.index:
            line["test"] = tests.loc[best].to_dict()
    return line


def _figures(rows):
    """Yields title, caption and figure of one setting."""
    results, reliability, shift, _ = rows

    def has(*keys):
        return all(k in results and results[k].notna().any() for k in keys)

    errors = [key for key in ("ece", "ece_ts") if has(key)]
    summary = statistics.summarize(results, errors)
    scaled = {"ece": "", "ece_ts": ", after temperature scaling (TS)"}
    for key in errors:
        yield (
            f"ECE by objective{scaled[key]}",
            f"With the accuracy under each bar. {_OVER_SEEDS} {tables.ECE}",
            figures.error_bars_by_objective(summary, key),
        )
    bins = {
        key: reliability[reliability["calibrator"] == calibrator]
        for key, calibrator in (("ece", "none"), ("ece_ts", "ts"))
        if key in errors and (reliability["calibrator"] == calibrator).any()
    }
    for key, here in bins.items():
        yield (
            f"Accuracy against confidence{scaled[key]}",
            "In 15 bins of equal width, over the test predictions of all "
            "seeds. Bins of fewer than 30 predictions are faint points beside "
            "the line. Below the diagonal a network is over-confident.",
            figures.accuracy_against_confidence(here),
        )
    yield from _shift_figures(results, shift)
    if results["objective"].nunique() > 1:
        for key in errors:
            yield (
                f"Accuracy-ECE trade-off{scaled[key]}",
                f"{_POINTS} No objective is both more accurate and better "
                f"calibrated than one on the Pareto front. {tables.ECE}",
                figures.metric_scatter(results, "accuracy", key, front=True),
            )
    effects = _effects(results)
    if len(effects):
        yield (*_EFFECTS, figures.effect_size_bars(effects))
    if has("average_uncertainty"):
        yield (
            "ECE against mean entropy",
            f"{_POINTS} {tables.ECE}",
            figures.metric_scatter(results, "average_uncertainty", "ece"),
        )
    for key, here in bins.items():
        yield (
            f"Reliability{scaled[key]}",
            "Accuracy in 15 bins of equal width, over the test predictions of "
            "all seeds; the gap leads to the mean confidence. Bins of fewer "
            "than 30 predictions are faint. The ECE above each is the mean "
            "over seeds, l2 over 15 bins of equal mass.",
            figures.reliability_by_objective(here, summary.mean[key]),
        )


def _effects(results):
    """Returns the effect sizes without and with temperature scaling."""
    keys = [key for key in ("ece", "ece_ts") if key in results]
    return pd.concat([statistics.effect_sizes(results, key) for key in keys])


def _shift_figures(results, shift):
    """Yields the figures of one setting under shift."""
    unscaled = statistics.shift_by_objective(shift)
    if not unscaled["severity"].any():
        return
    images = tables.images_text(results)
    corruptions = (
        f"Mean over {unscaled['corruptions'].max()} corruptions"
        + f", each set of {images} images" * bool(images)
    )
    lines = unscaled.assign(calibrator="none")
    nll = statistics.shift_by_objective(shift, "ts").query("objective == 'nll'")
    if len(nll):
        lines = pd.concat([lines, nll.assign(calibrator="ts")])
    yield (
        "ECE under shift",
        f"Without scaling, and NLL with temperature scaling fitted to the "
        f"clean calibration split. {corruptions}. {_OVER_SEEDS} {tables.ECE}",
        figures.shift_lines(lines),
    )
    yield (
        "Accuracy under shift",
        f"{corruptions}. {_OVER_SEEDS}",
        figures.shift_lines(
            statistics.shift_by_objective(shift, metric="accuracy"), "accuracy"
        ),
    )
    alone = results.loc[results["objective"] == results["primary"], "objective"]
    for objective in alone.unique() if len(alone) else lines["objective"][:1]:
        here = shift[shift["objective"] == objective]
        if here["calibrator"].nunique() > 1:
            yield (
                f"Scaling under shift, {objective_label(objective)}",
                "Temperatures are fitted to the clean calibration split. "
                f"{corruptions} and over seeds. Bars ±1 standard error within "
                "corruptions (Masson and Loftus): how much one scaling is "
                f"ahead of another varies by that. {tables.ECE}",
                figures.shift_lines(statistics.shift_by_calibrator(here)),
            )


def _page(rows, settings, made, command, progress):
    """Returns the self-contained page as text."""
    numbers = iter(range(1, 10_000))

    def images(drawn):
        return [
            (next(numbers), title, caption, _image(figure))
            for title, caption, figure in drawn
        ]

    sections = []
    for setting, part in settings.items():
        progress(f"drawing {setting}")
        sections.append(
            {
                "setting": setting,
                "headline": headline(part.results),
                "seeds": sorted(part.results["seed"].unique()),
                "tables": [
                    made[setting][n] for n in _TABLES if n in made[setting]
                ],
                "first": sum(name in made[setting] for name in _FIRST),
                "figures": images(_figures(part)),
            }
        )
    across = []
    effects = _effects(rows.results)
    if len(settings) > 1 and len(effects):
        across = images([(*_EFFECTS, figures.effect_size_bars(effects))])
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("caltrain_tf", "experiments"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    now = datetime.datetime.now(datetime.UTC).timestamp()
    date = datetime.datetime.fromtimestamp(int(epoch or now), datetime.UTC)
    return environment.get_template("report.html.j2").render(
        generator=GENERATOR,
        runs=len(rows.results),
        objectives=rows.results["objective"].nunique(),
        sections=sections,
        across=across,
        left_out=rows.left_out.to_dict("records"),
        left_columns=tables.LEFT,
        date=date.strftime("%Y-%m-%d"),
        version=importlib.import_module("caltrain_tf").__version__,
        command=command,
    )


def _image(figure):
    """Returns a figure as the data URL of a high-resolution PNG image."""
    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, dpi=_DOTS * _PIXELS, facecolor="white")
    # A third of the size of matplotlib's file, without a visible difference.
    image = Image.open(drawn).convert("RGB").quantize(128, dither=0)
    image.save(small, "png", optimize=True)
    data = base64.b64encode(small.getvalue()).decode()
    return {
        "src": f"data:image/png;base64,{data}",
        "width": round(image.width / _DOTS),
        "height": round(image.height / _DOTS),
    }


def _check_output(output, folders, overwrite):
    """Raises if the files of the report would replace others."""
    if output.is_dir():
        raise ValueError(
            "`output` must be a file. "
            f"Received: the folder {os.fspath(output)!r}"
        )
    if output.exists() and GENERATOR.encode() in output.read_bytes()[:2000]:
        return
    there = [path for path in (output, *folders) if path.exists()]
    if there and not overwrite:
        raise ValueError(
            "`output` must not replace files that are not of an earlier "
            "report, unless `overwrite` says so. Received: "
            f"{list(map(os.fspath, there))}, which exist"
        )
