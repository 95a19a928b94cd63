"""Writes a report: a self-contained page, and its rows and tables as files."""

import base64
import datetime
import importlib
import io
import itertools

import jinja2
import pandas as pd
import tqdm
from PIL import Image

from caltrain_tf import files
from caltrain_tf.experiments import collect, figures, statistics, tables
from caltrain_tf.experiments.figures import objective_label

# In the template, by which an earlier report is recognised.
_GENERATOR = 'content="caltrain_tf report"'
_OVER_SEEDS = "Means over seeds, bars ±1 standard error."


def write_report(rows, output, command=""):
    """Writes a page, and `<name>_rows/` and `<name>_tables/` next to it.

    Returns the main tables for the terminal.
    """
    output = files.as_path(output)
    kinds = ("rows", "tables")
    folders = [output.with_name(f"{output.stem}_{kind}") for kind in kinds]
    if output.exists() and _GENERATOR not in output.read_text()[:10_000]:
        raise ValueError(
            "--output must not be a file that no report has written. "
            f"Received: {output}"
        )
    settings = {
        setting: collect.of_setting(rows, setting)
        for setting in rows.results["setting"].unique()
    }
    made = {s: tables.build_tables(part) for s, part in settings.items()}
    page = _page(rows, settings, made, command)
    collect.write_rows(rows, folders[0])
    for name in tables.NAMES:
        here = {s: built[name] for s, built in made.items() if name in built}
        path = folders[1] / f"{name}.md"
        if here:
            files.write_text(path, tables.to_markdown(here))
        else:
            path.unlink(missing_ok=True)  # Of an earlier report.
    # The page is written last, so that all files exist if it does.
    files.write_text(output, page)
    return "\n\n".join(
        f"{setting}\n{tables.to_text(built['results'])}"
        for setting, built in made.items()
    )


def headline(results):
    """Returns what the line on top says: the best objective, or a reason."""
    summary = statistics.summarize(results, ["ece"])
    reason = ""
    if summary.competes is None:
        largest = tables.text_of(summary.error["accuracy"].max())
        reason = (
            "the accuracies are too uncertain (standard errors up to "
            f"{largest}%) to tell which objectives give up less than 1% "
            "accuracy; more seeds or longer training decide it"
        )
    elif not summary.best["ece"].any():
        reason = "it takes two objectives with two seeds"
    if reason:
        return {"best": None, "reason": reason}

    def numbers(name):
        mean, error = summary.mean.loc[name], summary.error.loc[name]
        texts = {k: tables.text_of(mean[k], error[k]) for k in mean.index}
        return {"name": objective_label(name), **texts}

    best = summary.best["ece"].idxmax()
    primary = results.loc[results["objective"] == best, "primary"].iloc[0]
    line = {"best": numbers(best), "alone": None, "test": None}
    if primary != best and primary in summary.mean.index:
        line["alone"] = numbers(primary)
        tests = statistics.paired_tests(results).query("objective == @best")
        line["test"] = next(iter(tests.to_dict("records")), None)
    return line


def _figures(rows):
    """Yields title, caption and figure of one setting."""
    results, reliability, shift, _ = rows
    scaled = {"ece": "", "ece_ts": ", after temperature scaling (TS)"}
    errors = [k for k in scaled if k in results and results[k].notna().any()]
    summary = statistics.summarize(results, errors)
    for key in errors:
        yield (
            f"ECE by objective{scaled[key]}",
            f"With the accuracy under each bar. {_OVER_SEEDS} {tables.ECE}",
            figures.error_bars_by_objective(summary, key),
        )
    yield from _effect_figures(results)
    yield from _shift_figures(results, shift)
    bins = reliability[reliability["calibrator"] == "none"]
    if len(bins):
        yield (
            "Accuracy against confidence",
            "In 15 bins of equal width, over the test predictions of all "
            "seeds, without bins of fewer than 30. Below the diagonal a "
            "network is over-confident.",
            figures.accuracy_against_confidence(bins),
        )


def _effect_figures(results):
    """Yields the figures of secondary losses against their primary ones."""
    keys = [key for key in ("ece", "ece_ts") if key in results]
    effects = pd.concat([statistics.effect_sizes(results, k) for k in keys])
    if len(effects):
        yield (
            "Effect sizes of the secondary losses (Cohen's d)",
            "The mean ECE of the primary loss alone minus that with the "
            "secondary loss, over the pooled standard deviation of the seeds. "
            "Bars are means over settings and primary losses, points are one "
            "of them each; interleaved training counts with the others. With "
            f"few seeds d is uncertain, and biased upwards. {tables.ECE}",
            figures.effect_size_bars(effects),
        )
    gains = pd.DataFrame()
    if "train_confidence" in results:
        gains = statistics.gains(results).dropna()
    if len(gains):
        yield (
            "When does a secondary loss help?",
            "A point is a run: the change of the test ECE by the secondary "
            "loss, against the same seed of the primary loss alone, over the "
            "confidence minus the accuracy of the latter on its training "
            f"images. {tables.ECE}",
            figures.gains_by_training_gap(gains),
        )


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
    nll = statistics.shift_by_objective(shift, "ts").query("objective == 'nll'")
    lines = [unscaled.assign(calibrator="none"), nll.assign(calibrator="ts")]
    yield (
        "ECE under shift",
        f"Without scaling, and NLL with temperature scaling fitted to the "
        f"clean calibration split. {corruptions}. {_OVER_SEEDS} {tables.ECE}",
        figures.shift_lines(pd.concat(lines)),
    )
    accuracy = statistics.shift_by_objective(shift, metric="accuracy")
    yield (
        "Accuracy under shift",
        f"{corruptions}. {_OVER_SEEDS}",
        figures.shift_lines(accuracy, "accuracy"),
    )
    alone = results.loc[results["objective"] == results["primary"], "objective"]
    shown = alone.unique() if len(alone) else unscaled["objective"][:1]
    for objective in shown:
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


def _page(rows, settings, made, command):
    """Returns the self-contained page as text."""
    numbers = itertools.count(1)

    def images(drawn):
        return [
            (next(numbers), title, caption, _image(figure))
            for title, caption, figure in drawn
        ]

    sections = []
    for setting, part in tqdm.tqdm(settings.items(), "drawing", disable=None):
        built = made[setting]
        sections.append(
            {
                "setting": setting,
                "headline": headline(part.results),
                "seeds": sorted(part.results["seed"].unique()),
                "tables": list(built.values()),
                "first": sum(name in built for name in tables.FIRST),
                "figures": images(_figures(part)),
            }
        )
    several = len(settings) > 1
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("caltrain_tf", "experiments"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template("report.html.j2").render(
        runs=len(rows.results),
        objectives=rows.results["objective"].nunique(),
        sections=sections,
        across=images(_effect_figures(rows.results)) if several else [],
        left_out=rows.left_out.to_dict("records"),
        left_columns=tables.LEFT,
        date=datetime.date.today().isoformat(),
        version=importlib.import_module("caltrain_tf").__version__,
        command=command,
    )


def _image(figure):
    """Returns a figure as the data URL of a high-resolution PNG image."""
    drawn, small = io.BytesIO(), io.BytesIO()
    # Two pixels of the image per CSS pixel, of which there are 96 per inch.
    figure.savefig(drawn, dpi=2 * 96, facecolor="white")
    # A third of the size of matplotlib's file, without a visible difference.
    image = Image.open(drawn).convert("RGB").quantize(128, dither=0)
    image.save(small, "png")
    data = base64.b64encode(small.getvalue()).decode()
    return {
        "src": f"data:image/png;base64,{data}",
        "width": round(image.width / 2),
        "height": round(image.height / 2),
    }
