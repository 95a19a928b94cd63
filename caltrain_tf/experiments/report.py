"""Writes a report: a self-contained page, and its rows and tables as files."""

import base64
import importlib
import io

import jinja2
import pandas as pd
import tqdm
from PIL import Image

from caltrain_tf import files
from caltrain_tf.experiments import collect, figures, statistics, tables

# In the template, by which an earlier report is recognised.
_GENERATOR = 'content="caltrain_tf report"'
_OVER_SEEDS = "Means over seeds, bars ±1 standard error."


def write_report(rows, output, command=""):
    """Writes a page, its rows and its tables; returns texts to be printed."""
    output = files.as_path(output)
    if output.exists() and _GENERATOR not in output.read_text()[:10_000]:
        raise ValueError(
            "--output must not be a file that no report has written. "
            f"Received: {output}"
        )
    sections, texts = [], []
    names = rows.results["setting"].unique()
    for setting in tqdm.tqdm(names, "drawing", disable=None):
        part = collect.of_setting(rows, setting)
        built = tables.build_tables(part)
        sections.append(
            {
                "setting": setting,
                "headline": headline(part.results),
                "seeds": sorted(part.results["seed"].unique()),
                "tables": built,
                "figures": _images(_figures(part)),
            }
        )
        texts.append(f"{setting}\n{tables.to_text(built['results'])}")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("caltrain_tf", "experiments"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    page = environment.get_template("report.html.j2").render(
        runs=len(rows.results),
        objectives=rows.results["objective"].nunique(),
        sections=sections,
        across=_images(_effect_figures(rows.results)) if len(names) > 1 else [],
        first=tables.FIRST,
        left_columns=tables.LEFT,
        version=importlib.import_module("caltrain_tf").__version__,
        command=command,
    )
    collect.write_rows(rows, output.with_name(f"{output.stem}_rows"))
    for name in tables.NAMES:
        having = [s for s in sections if name in s["tables"]]
        here = {s["setting"]: s["tables"][name] for s in having}
        path = output.with_name(f"{output.stem}_tables") / f"{name}.md"
        if here:
            files.write_text(path, tables.to_markdown(here))
        else:
            path.unlink(missing_ok=True)  # Of an earlier report.
    # The page is written last, so that all files exist if it does.
    files.write_text(output, page)
    return "\n\n".join(texts)


def headline(results):
    """Returns what the line on top says: the best objective, or a reason."""
    summary = statistics.summarize(results, ["ece"])
    if summary.competes is None:
        largest = tables.text_of(summary.error["accuracy"].max())
        reason = (
            "the accuracies are too uncertain (standard errors up to "
            f"{largest}%) to tell which objectives give up less than 1% "
            "accuracy; more seeds or longer training decide it"
        )
        return {"reason": reason}
    if not summary.best["ece"].any():
        return {"reason": "it takes two objectives with two seeds"}

    def numbers(name):
        mean, error = summary.mean.loc[name], summary.error.loc[name]
        texts = {k: tables.text_of(mean[k], error[k]) for k in mean.index}
        return {"name": figures.objective_label(name), **texts}

    best = summary.best["ece"].idxmax()
    primary = results.loc[results["objective"] == best, "primary"].iloc[0]
    line = {"best": numbers(best)}
    if primary != best and primary in summary.mean.index:
        line["alone"] = numbers(primary)
        tests = statistics.paired_tests(results).query("objective == @best")
        line["test"] = next(iter(tests.to_dict("records")), None)
    return line


def _figures(rows):
    """Yields title, caption and figure of one setting."""
    results, reliability, shift = rows
    scaled = {"ece": "", "ece_ts": ", after temperature scaling (TS)"}
    for key, text in scaled.items():
        if key in results and results[key].notna().any():
            summary = statistics.summarize(results, [key])
            yield (
                f"ECE by objective{text}",
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
    if "train_confidence" not in results:
        return
    if len(gains := statistics.gains(results).dropna()):
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
    corruptions = f"Mean over {unscaled['corruptions'].max()} corruptions"
    if images := tables.images_text(results):
        corruptions += f", each set of {images} images"
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
    alone = shift[shift["objective"].isin(results["primary"])]
    for objective, here in alone.groupby("objective", sort=False):
        yield (
            f"Scaling under shift, {figures.objective_label(objective)}",
            "Temperatures are fitted to the clean calibration split. "
            f"{corruptions} and over seeds. Bars ±1 standard error within "
            "corruptions (Masson and Loftus): how much one scaling is ahead of "
            f"another varies by that. {tables.ECE}",
            figures.shift_lines(statistics.shift_by_calibrator(here)),
        )


def _images(drawn):
    """Returns titles, captions and figures with attributes of `<img>`."""
    images = []
    for title, caption, figure in drawn:
        # Two pixels of the image per CSS pixel, of which there are 96 per inch.
        figure.savefig(png := io.BytesIO(), dpi=2 * 96, facecolor="white")
        # A third of the size of matplotlib's file, and it looks the same.
        image = Image.open(png).convert("RGB").quantize(128, dither=0)
        image.save(png := io.BytesIO(), "png")
        data = base64.b64encode(png.getvalue()).decode()
        source = {"src": f"data:image/png;base64,{data}"}
        size = {"width": image.width // 2, "height": image.height // 2}
        images.append((title, caption, source | size))
    return images
