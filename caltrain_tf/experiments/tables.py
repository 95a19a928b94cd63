"""The tables of a report, and their file formats.

A `Table` holds numbers for CSV, and the same numbers as texts for the page,
Markdown, LaTeX and the terminal. `build_tables` makes all tables of a report.
"""

import math
from typing import NamedTuple

import pandas as pd

from caltrain_tf import evaluation
from caltrain_tf.experiments import statistics
from caltrain_tf.experiments.figures import calibrator_label, objective_label

# Title, factor and number of digits of each measure.
_MEASURES = {
    "accuracy": ("Accuracy (%)", 100, 2),
    "ece": ("ECE (%)", 100, 2),
    "train_accuracy": ("Training accuracy (%)", 100, 2),
    "train_ece": ("Training ECE (%)", 100, 2),
    "ks_error": ("KS error (%)", 100, 2),
    "mean_sweep_ce": ("Mean-sweep CE (%)", 100, 2),
    "marginal_ece": ("Marginal ECE (%)", 100, 2),
    "brier": ("Brier score", 1, 4),
    "nll": ("NLL (nats)", 1, 4),
    "average_uncertainty": ("Mean entropy (nats)", 1, 4),
    "accuracy_dirichlet": ("Accuracy with Dirichlet (%)", 100, 2),
    "nll_dirichlet": ("NLL with Dirichlet (nats)", 1, 4),
}
_TESTS = {
    "difference": ("Difference (points)", 100, 2),
    "t_p_value": ("p, t-test", 1, 4),
    "t_p_holm": ("p, t-test, Holm", 1, 4),
    "exact_p_value": ("p, sign flips", 1, 4),
    "exact_p_holm": ("p, sign flips, Holm", 1, 4),
    "smallest_possible": ("Smallest p of sign flips", 1, 4),
}
ACCURACY_RULE = (
    "Objectives marked † give up 1% accuracy or more against the most accurate "
    "primary loss alone (of all objectives where none was run alone), "
    "and are not marked as best."
)
ECE = "ECE is l2 over 15 bins of equal mass."
_SCALING = (
    "TS is temperature scaling fitted to the calibration split by NLL, "
    "TS-SB-ECE the same fitted by the soft-binned ECE."
)
_ESTIMATES = "Means ± standard errors over seeds, of the test split."
_TEST_NOTE = (
    "Two-sided paired tests over the seeds that both have, of the difference "
    "in {}: the t-test, and all flips of the differences' signs. Holm's "
    "correction is over the tests of this table. With n common seeds the sign "
    "flips can give no p below 2 / 2^n, the last column, however clear the "
    "difference."
)
# Escapes for LaTeX captions; pandas escapes cells and titles.
_CAPTION = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        **{character: f"\\{character}" for character in "&%$#_{}"},
    }
)
_LATEX = {"±": r"$\pm$", "−": "$-$", "–": "--", "†": r"$\dagger$"}
# Characters that Markdown could interpret as markup.
_MARKDOWN = str.maketrans({c: f"\\{c}" for c in "\\`*_|<>[]"})


class Table(NamedTuple):
    """A table of one setting.

    Attributes:
        title: Title of the table.
        note: Note on how the table was computed.
        numbers: A frame of plain numbers, for CSV.
        texts: A frame of the cells as they are shown.
        best: A boolean frame of the same shape, true for marked cells.
        aside: Whether each row is excluded from the comparison because it gives
            up too much accuracy.
        group: The column by which the page groups rows, or None.
    """

    title: str
    note: str
    numbers: pd.DataFrame
    texts: pd.DataFrame
    best: pd.DataFrame
    aside: list
    group: str | None = None


def build_tables(rows):
    """Returns every table of a report.

    Args:
        rows: A `Rows`.

    Returns:
        A dictionary from file names to dictionaries from settings to `Table`s.
        Tables for which the rows lack the data are absent.
    """
    tables = {}
    for name, build in _BUILDERS.items():
        for setting in rows.results["setting"].unique():
            results, _, shift, _ = of_setting(rows, setting)
            table = build(results, shift)
            if table is not None:
                tables.setdefault(name, {})[setting] = table
    return tables


def of_setting(rows, setting):
    """Returns the `Rows` of one setting."""
    *parts, left_out = rows
    here = [part[part["setting"] == setting] for part in parts]
    return type(rows)(*here, left_out)


def text_of(number, error=math.nan, factor=100, digits=2):
    """Returns a number as text, in percent by default.

    Example:
        >>> text_of(0.125, 0.01)
        '12.50 ± 1.00'
        >>> text_of(-0.125)
        '−12.50'
    """
    if math.isnan(number):
        return "–"
    text = f"{factor * number:.{digits}f}".replace("-", "−")
    return (
        text if math.isnan(error) else f"{text} ± {factor * error:.{digits}f}"
    )


def common_shift(shift, calibrator, metric="ece"):
    """Returns means under shift over the sets that all runs have.

    Args:
        shift: Shift rows of one setting.
        calibrator: Name of the calibrator.
        metric: Name of the metric.

    Returns:
        The rows of `evaluation.compare_runs`, which are empty if the runs share
        no corrupted set, and the number of corruptions.
    """
    here = shift[
        (shift["calibrator"] == calibrator) & (shift["metric"] == metric)
    ]
    runs = here.groupby(["objective", "seed"], sort=False)
    sets = here[["corruption", "severity"]].value_counts()
    common = sets[sets == runs.ngroups].index
    keys = pd.MultiIndex.from_frame(here[["corruption", "severity"]])
    here = here[keys.isin(common)]
    corruptions = here.loc[here["severity"] > 0, "corruption"].nunique()
    if not corruptions:
        return [], 0
    pairs = [
        (objective, run.to_dict("records"))
        for (objective, _), run in here.groupby(
            ["objective", "seed"], sort=False
        )
    ]
    means = evaluation.compare_runs(pairs, metric, calibrator)
    # Keeps the order of the rows.
    order = [objective for objective, _ in pairs]
    means.sort(key=lambda row: (order.index(row["objective"]), row["severity"]))
    return means, corruptions


def shift_images(results):
    """Returns the number of images in a shifted set as text, "" if unknown."""
    counts = results.get("shift_examples", pd.Series(dtype=float)).dropna()
    counts = sorted(set(counts.astype(int)))
    return " or ".join(f"{count:,}" for count in counts)


def table_files(tables):
    """Returns the tables as texts of CSV, Markdown and LaTeX files, by name.

    Args:
        tables: Tables from `build_tables`.
    """
    texts = {}
    for name, made in tables.items():
        frames = [
            table.numbers.assign(setting=setting)
            for setting, table in made.items()
        ]
        frame = pd.concat(frames, ignore_index=True)
        frame.insert(0, "setting", frame.pop("setting"))
        texts[f"{name}.csv"] = frame.to_csv(index=False, lineterminator="\n")
        texts[f"{name}.md"] = _markdown(made)
        texts[f"{name}.tex"] = _latex(made)
    return texts


def table_names():
    """Returns the names of all files that `table_files` may return."""
    endings = ("csv", "md", "tex")
    return [f"{name}.{ending}" for name in _BUILDERS for ending in endings]


def to_text(table):
    """Returns a table for the terminal; `*` marks the best."""
    texts = table.texts.where(~table.best, table.texts + "*")
    return texts.to_markdown(
        index=False,
        tablefmt="plain",
        colalign=_alignment(table),
        disable_numparse=True,
    )


def is_text(table):
    """Returns whether each column holds texts, which are left-aligned."""
    return [
        column in ("Objective", "Against", "Scaling", "Hyperparameters")
        for column in table.texts
    ]


def _alignment(table):
    return ["left" if text else "right" for text in is_text(table)]


def _markdown(tables):
    first, *others = tables.values()
    lines = [f"# {first.title.translate(_MARKDOWN)}"]
    same_note = all(table.note == first.note for table in others)
    for setting, table in tables.items():
        texts = table.texts.map(lambda text: text.translate(_MARKDOWN))
        texts = texts.where(~table.best, "**" + texts + "**")
        text = texts.rename(columns=lambda c: c.translate(_MARKDOWN))
        text = text.to_markdown(
            index=False, colalign=_alignment(table), disable_numparse=True
        )
        lines += ["", f"## {setting.translate(_MARKDOWN)}", "", text]
        if not same_note:
            lines += ["", table.note.translate(_MARKDOWN)]
    if same_note:
        lines += ["", first.note.translate(_MARKDOWN)]
    return "\n".join(lines) + "\n"


def _latex(tables):
    parts = ["% Needs \\usepackage{booktabs}."]
    for setting, table in tables.items():
        caption = f"{table.title}, {setting}. {table.note}"
        text = (
            table.texts.style.format(escape="latex")
            .format_index(escape="latex", axis="columns")
            .hide(axis="index")
            .apply(
                lambda _, best=table.best: best.map(
                    lambda mark: "textbf:--rwrap" if mark else ""
                ),
                axis=None,
            )
        )
        parts.append(
            text.to_latex(
                hrules=True,
                caption=caption.translate(_CAPTION),
                position_float="centering",
                column_format="".join("rl"[text] for text in is_text(table)),
            ).rstrip()
        )
    text = "\n\n".join(parts) + "\n"
    for character, command in _LATEX.items():
        text = text.replace(character, command)
    return text


def _measure(key):
    """Returns title, factor and digits of a measure with any calibrator."""
    if key in _MEASURES:
        return _MEASURES[key]
    calibrator = calibrator_label(key.removeprefix("ece_"))
    return f"ECE+{calibrator} (%)", 100, 2


def _measure_table(results, keys, title, note):
    """Returns a table of means ± standard errors, with the best marked.

    Single runs, and a single objective, are not marked as best.
    """
    keys = [
        key for key in keys if key in results and results[key].notna().any()
    ]
    if not keys:
        return None
    summaries = statistics.summarize_results(results, keys)
    numbers, texts, best = [], [], []
    for summary in summaries:
        mean, error = summary["mean"], summary["error"]
        aside = not summary["within_accuracy"]
        # The count of the measure that the fewest runs have.
        counts = [summary["count"][key] for key in keys if key in mean]
        line = {
            "objective": summary["objective"],
            "seeds": min(counts, default=0),
        }
        cells = {
            "Objective": objective_label(summary["objective"]) + " †" * aside,
            "Seeds": str(line["seeds"]),
        }
        marks = dict.fromkeys(cells, False)
        for key in keys:
            name, *form = _measure(key)
            line[key] = mean.get(key, math.nan)
            line[f"{key}_error"] = error.get(key, math.nan)
            there = key in mean
            cells[name] = text_of(mean[key], error[key], *form) if there else ""
            marks[name] = (
                summary["best"].get(key, False)
                and summary["count"][key] > 1
                and len(summaries) > 1
            )
        marked = [key for key in keys if marks[_measure(key)[0]]]
        line |= {"best": " ".join(marked), "too_inaccurate": aside}
        numbers.append(line)
        texts.append(cells)
        best.append(marks)
    return Table(
        title,
        note,
        pd.DataFrame(numbers),
        pd.DataFrame(texts),
        pd.DataFrame(best),
        [line["too_inaccurate"] for line in numbers],
    )


def _main_table(results, shift):
    keys = ["accuracy", "ece", "ece_ts", "ece_ts_sb_ece"]
    more = [key for key in results if key.startswith("ece_")]
    keys += [key for key in more if key not in (*keys, "ece_dirichlet")]
    title = "Accuracy and calibration error"
    note = f"{_ESTIMATES} {ECE} {_SCALING} {ACCURACY_RULE}"
    return _measure_table(results, keys, title, note)


def _other_table(results, shift):
    keys = ("ks_error", "mean_sweep_ce", "marginal_ece", "brier", "nll")
    note = (
        f"{_ESTIMATES} Without scaling. Mean-sweep CE and marginal ECE are l2 "
        f"over bins of equal mass; the KS error is l1. {ACCURACY_RULE}"
    )
    keys = (*keys, "average_uncertainty")
    return _measure_table(results, keys, "Other measures", note)


def _memorisation_table(results, shift):
    if "train_ece" not in results or results["train_ece"].isna().all():
        return None
    note = (
        "Means ± standard errors over seeds. On the left the training set, "
        "over the epoch of the weights and as it was trained; on the right the "
        "test split. Where nearly all training images are classified "
        "correctly, with little training ECE, a secondary loss finds nothing "
        f"to mend there. {ACCURACY_RULE}"
    )
    keys = ("train_accuracy", "train_ece", "accuracy", "ece")
    title = "Is the training set memorised?"
    return _measure_table(results, keys, title, note)


def _dirichlet_table(results, shift):
    if "ece_dirichlet" not in results or results["ece_dirichlet"].isna().all():
        return None
    note = (
        f"{_ESTIMATES} Dirichlet calibration with off-diagonal and intercept "
        "regularisation, fitted to the calibration split, its penalties chosen "
        f"there by cross-validation. {ACCURACY_RULE}"
    )
    keys = ("accuracy", "accuracy_dirichlet", "ece", "ece_dirichlet")
    keys = (*keys, "nll", "nll_dirichlet")
    return _measure_table(results, keys, "Dirichlet calibration", note)


def _significance_table(metric, comparison, title, note):
    def build(results, shift):
        if metric not in results or results[metric].isna().all():
            return None
        tests = pd.DataFrame(statistics.significance_rows(results, metric))
        if len(tests):
            is_kind = tests["comparison"] == comparison
            tests = tests[is_kind & (tests["count"] > 1)]
        if tests.empty:
            return None
        keys = ["objective", "against", "count", *_TESTS]
        numbers = tests[keys].rename(columns={"count": "seeds"})
        texts = {
            "Objective": tests["objective"].map(objective_label),
            "Against": tests["against"].map(objective_label),
            "Seeds": tests["count"].map(str),
        }
        for key, (name, factor, digits) in _TESTS.items():
            texts[name] = [
                text_of(value, factor=factor, digits=digits)
                for value in tests[key]
            ]
        return _plain_table(title, note, numbers, pd.DataFrame(texts))

    return build


def _shift_table(results, shift):
    """Returns a table of ECE by scaling, objective and severity.

    The best objective of each scaling and severity is marked.
    """
    summaries = statistics.summarize_results(results, ["ece"])
    aside = {s["objective"]: not s["within_accuracy"] for s in summaries}
    lines = []
    for calibrator in shift["calibrator"].unique():
        means, _ = common_shift(shift, calibrator)
        lines += [{**row, "calibrator": calibrator} for row in means]
    if not lines:
        return None
    frame = pd.DataFrame(lines)
    frame["competes"] = ~frame["objective"].map(aside).astype(bool)
    competing = frame[frame["competes"]].groupby(["calibrator", "severity"])
    lowest = competing["mean"].transform("min")
    frame["best"] = frame["mean"].eq(lowest) & (frame["count"] > 1)
    frame["best"] &= frame["objective"].nunique() > 1
    images = shift_images(results)
    titles = {
        severity: f"Severity {severity} (%)" if severity else "Clean (%)"
        for severity in sorted(frame["severity"].unique())
    }
    if images and 0 in titles:
        titles[0] = f"Clean, the same {images} images (%)"
    numbers, texts, best = [], [], []
    for (calibrator, objective), own in frame.groupby(
        ["calibrator", "objective"], sort=False
    ):
        line = {
            "objective": objective,
            "seeds": own["count"].iloc[0],
            "scaling": calibrator_label(calibrator),
        }
        cells = {
            "Objective": objective_label(objective) + " †" * aside[objective],
            "Seeds": str(line["seeds"]),
            "Scaling": line["scaling"],
        }
        marks = dict.fromkeys(cells, False)
        for row in own.itertuples():
            line[f"severity_{row.severity}"] = row.mean
            line[f"severity_{row.severity}_error"] = row.error
            cells[titles[row.severity]] = text_of(row.mean, row.error)
            marks[titles[row.severity]] = row.best
        numbers.append(line)
        texts.append(cells)
        best.append(marks)
    _, corruptions = common_shift(shift, shift["calibrator"].iloc[0])
    return Table(
        "ECE under shift",
        _shift_note(results, corruptions, images),
        pd.DataFrame(numbers),
        pd.DataFrame(texts).fillna(""),
        pd.DataFrame(best).astype(bool),
        [text.endswith("†") for text in (cell["Objective"] for cell in texts)],
        group="Scaling",
    )


def _shift_note(results, corruptions, images):
    note = (
        f"At each severity the mean over {corruptions} corruptions, those that "
        "every run was measured on; means ± standard errors over seeds of it. "
    )
    if not images:
        note += "How many images each set has was not recorded. "
    else:
        note += f"Every set, the clean one too, has {images} images. "
        tested = results.get("test_examples", pd.Series(dtype=float)).dropna()
        tested = sorted(set(tested.astype(int)))
        if tested and tested != sorted(set(results["shift_examples"].dropna())):
            note += (
                "The ECE of fewer images is larger: compare severities with "
                "the clean column here, not with the ECE of "
                f"{' or '.join(f'{count:,}' for count in tested)} test images "
                "in the other tables. "
            )
    return (
        f"{note}{ECE} {_SCALING} The calibration split is clean. The lowest "
        "mean of each scaling and severity is marked, where it is of two runs "
        f"or more. {ACCURACY_RULE}"
    )


def _hyperparameter_table(results, shift):
    """Returns a table with one row per objective and its hyperparameters."""
    if "hyperparameters" not in results:
        results = results.assign(hyperparameters="")
    numbers = (
        results.groupby(["objective", "hyperparameters"], sort=False)["seed"]
        .agg(lambda seeds: ", ".join(map(str, seeds)))
        .rename("seeds")
        .reset_index()[["objective", "seeds", "hyperparameters"]]
    )
    texts = pd.DataFrame(
        {
            "Objective": numbers["objective"].map(objective_label),
            "Seeds": numbers["seeds"],
            "Hyperparameters": numbers["hyperparameters"],
        }
    )
    note = (
        "Settings of the losses, the weight of the secondary one (beta) and "
        "that of the l2 penalty."
    )
    title = "What every objective was trained with"
    return _plain_table(title, note, numbers, texts)


def _plain_table(title, note, numbers, texts):
    """Returns a table without marks."""
    texts = texts.reset_index(drop=True)
    best = pd.DataFrame(False, index=texts.index, columns=texts.columns)
    return Table(title, note, numbers, texts, best, [False] * len(texts))


# In the order of the page, by the names of the files.
_BUILDERS = {
    "results": _main_table,
    "measures": _other_table,
    "memorisation": _memorisation_table,
    "dirichlet": _dirichlet_table,
    "significance": _significance_table(
        "ece",
        "primary",
        "Significance of a secondary loss",
        _TEST_NOTE.format("ECE"),
    ),
    "significance_ts": _significance_table(
        "ece_ts",
        "primary",
        "Significance of a secondary loss after temperature scaling",
        _TEST_NOTE.format("ECE+TS"),
    ),
    "significance_best": _significance_table(
        "ece",
        "best",
        "Significance against the lowest ECE",
        _TEST_NOTE.format("ECE")
        + " The best is chosen by the values that are tested, so that these p "
        "look somewhat clearer than they are.",
    ),
    "shift": _shift_table,
    "hyperparameters": _hyperparameter_table,
}
