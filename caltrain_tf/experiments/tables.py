"""The tables of a report, on the page and as CSV, Markdown and LaTeX."""

import re
from typing import NamedTuple

import pandas as pd

from caltrain_tf.experiments import statistics
from caltrain_tf.experiments.figures import (
    calibrator_label,
    metric_factor,
    metric_label,
    objective_label,
)

_TESTS = {
    "t_p_value": "p, t-test",
    "t_p_holm": "p, t-test, Holm",
    "exact_p_value": "p, sign flips",
    "exact_p_holm": "p, sign flips, Holm",
    "smallest_possible": "Smallest p of sign flips",
}
_RULE = (
    "The best mean is marked. Objectives with † give up 1% accuracy or more "
    "against the most accurate primary loss alone, and do not compete."
)
_UNDECIDED = (
    "Nothing is marked: the standard errors of the accuracies are too large to "
    "tell which objectives give up 1% accuracy or more."
)
ECE = "ECE is l2 over 15 bins of equal mass."
_ESTIMATES = "Means ± standard errors over seeds, of the test split."
_SCALING = (
    "TS is temperature scaling fitted to the calibration split by NLL, "
    "TS-SB-ECE the same fitted by the soft-binned ECE."
)
_PAIRS = (
    "Two-sided paired tests over the common seeds of the difference in {}: the "
    "t-test, and all flips of the differences' signs, which cannot give a p "
    "below the last column. Holm's correction is over the tests of this table."
)
_BEST = (
    " The best is chosen by the values that are tested, so that these p look "
    "somewhat clearer than they are."
)
LEFT = ("Objective", "Against", "Scaling", "Hyperparameters")


class Table(NamedTuple):
    """A table of one setting.

    Attributes:
        title: Title of the table.
        note: How it was computed.
        numbers: A frame of plain numbers, for CSV.
        texts: A frame of the cells as they are shown.
        best: A boolean frame of the same shape, true for marked cells.
    """

    title: str
    note: str
    numbers: pd.DataFrame
    texts: pd.DataFrame
    best: pd.DataFrame


def build_tables(rows):
    """Returns the tables of the `Rows` of one setting, by the names of files.

    Tables for which the rows lack the data are absent.
    """
    results = rows.results
    known = ["accuracy", "ece", "ece_ts", "ece_ts_sb_ece"]
    others = [key for key in results if key.startswith("ece_")]
    known += [key for key in others if key not in (*known, "ece_dirichlet")]
    tables = {
        "results": _measures(
            results,
            "Accuracy and calibration error",
            f"{_ESTIMATES} {ECE} {_SCALING}",
            known,
        ),
        "significance": _tests(
            results, "Significance of a secondary loss", "ece", "primary"
        ),
        "shift": _shift(rows),
        "measures": _measures(
            results,
            "Other measures",
            f"{_ESTIMATES} Without scaling. Mean-sweep CE and marginal ECE are "
            "l2 over bins of equal mass; the KS error is l1.",
            ["ks_error", "mean_sweep_ce", "marginal_ece", "brier", "nll"]
            + ["average_uncertainty"],
        ),
        "memorisation": _measures(
            results,
            "Is the training set memorised?",
            f"{_ESTIMATES} If nearly all training images are classified "
            "correctly, with a small training ECE, a secondary loss finds "
            "nothing to improve there.",
            ["train_accuracy", "train_ece", "train_ece_l1", "accuracy", "ece"],
            needs="train_accuracy",
        ),
        "dirichlet": _measures(
            results,
            "Dirichlet calibration",
            f"{_ESTIMATES} Fitted to the calibration split, with penalties "
            "chosen by cross-validation.",
            ["accuracy", "accuracy_dirichlet", "ece", "ece_dirichlet"]
            + ["nll", "nll_dirichlet"],
            needs="ece_dirichlet",
        ),
        "significance_ts": _tests(
            results,
            "Significance of a secondary loss after temperature scaling",
            "ece_ts",
            "primary",
        ),
        "significance_best": _tests(
            results, "Significance against the lowest ECE", "ece", "best"
        ),
        "hyperparameters": _hyperparameters(results),
    }
    return {name: it for name, it in tables.items() if it is not None}


def text_of(mean, error=float("nan"), metric="ece"):
    """Returns a number as text, with its standard error unless it is NaN.

    Example:
        >>> text_of(0.125, 0.01)
        '12.50 ± 1.00'
    """
    factor = metric_factor(metric)
    digits = 2 if factor == 100 else 4
    numbers = [number for number in (mean, error) if number == number]
    return " ± ".join(f"{factor * number:.{digits}f}" for number in numbers)


def images_text(results):
    """Returns the number of images in a shifted set, "" if unknown."""
    counts = results.get("shift_examples", pd.Series(dtype="Int64")).dropna()
    return " or ".join(f"{count:,}" for count in sorted(set(counts)))


def to_csv(tables):
    """Returns the numbers of tables of several settings as CSV."""
    frames = [it.numbers.assign(setting=name) for name, it in tables.items()]
    frame = pd.concat(frames, ignore_index=True)
    frame.insert(0, "setting", frame.pop("setting"))
    return frame.to_csv(index=False, lineterminator="\n")


def to_text(table):
    """Returns a table for the terminal; `*` marks the best."""
    texts = table.texts.where(~table.best, table.texts + "*")
    return _tabulate(texts, tablefmt="plain")


def to_markdown(tables):
    """Returns tables of several settings as Markdown."""
    lines = [f"# {next(iter(tables.values())).title}"]
    for setting, table in tables.items():
        texts = table.texts.map(_escape)
        texts = texts.where(~table.best, "**" + texts + "**")
        lines += ["", f"## {_escape(setting)}", "", _tabulate(texts)]
    notes = dict.fromkeys(table.note for table in tables.values())
    return "\n".join([*lines, "", *map(_escape, notes)]) + "\n"


def to_latex(tables):
    """Returns tables of several settings as LaTeX."""
    parts = ["% Needs \\usepackage{booktabs}."]
    for setting, table in tables.items():
        marks = table.best.map(lambda best: "textbf:--rwrap" if best else "")
        text = (
            table.texts.style.format(escape="latex")
            .format_index(escape="latex", axis="columns")
            .hide(axis="index")
            .apply(lambda _, marks=marks: marks, axis=None)
            .to_latex(
                hrules=True,
                caption=table.title,
                position_float="centering",
                column_format="".join("rl"[c in LEFT] for c in table.texts),
            )
        )
        parts.append(f"% {setting}\n% {table.note}\n{text.rstrip()}")
    return "\n\n".join(parts) + "\n"


def _tabulate(texts, **options):
    sides = ["left" if c in LEFT else "right" for c in texts]
    return texts.to_markdown(
        index=False, colalign=sides, disable_numparse=True, **options
    )


def _escape(text):
    """Escapes what Markdown could interpret as markup."""
    return re.sub(r"([\\`*_|<>\[\]])", r"\\\1", text)


def _measures(results, title, note, keys, needs=None):
    """Returns a table of means ± standard errors, with the best marked."""
    there = [k for k in keys if k in results and results[k].notna().any()]
    if not there or (needs and needs not in there):
        return None
    mean, error, count, best, competes = statistics.summarize(results, there)
    # The count of the measure that the fewest runs have.
    seeds = count[there].replace(0, pd.NA).min(axis=1).fillna(0).astype(int)
    labels = _labels(mean.index, competes)
    numbers, texts = {"objective": mean.index, "seeds": seeds}, {}
    for key in there:
        numbers |= {key: mean[key], f"{key}_error": error[key]}
        texts[metric_label(key)] = [
            text_of(*pair, key)
            for pair in zip(mean[key], error[key], strict=True)
        ]
    best = best[there]
    numbers["best"] = [
        " ".join(best.columns[row]) for row in best.to_numpy(bool)
    ]
    numbers["too_inaccurate"] = ["†" in label for label in labels]
    marks = best.set_axis(texts, axis=1).reset_index(drop=True)
    return _table(
        title,
        f"{note} {_UNDECIDED if competes is None else _RULE}",
        pd.DataFrame(numbers),
        pd.DataFrame({"Objective": labels, "Seeds": seeds.map(str), **texts}),
        marks,
    )


def _tests(results, title, metric, against):
    """Returns a table of paired tests."""
    if metric not in results or results[metric].isna().all():
        return None
    tests = statistics.paired_tests(results, metric, against)
    if tests.empty:
        return None
    texts = {
        "Objective": tests["objective"].map(objective_label),
        "Against": tests["against"].map(objective_label),
        "Seeds": tests["seeds"].map(str),
        "Difference (points)": tests["difference"].map(text_of),
    }
    for key, name in _TESTS.items():
        texts[name] = [text_of(p, metric="p") for p in tests[key]]
    keys = ["objective", "against", "seeds", "difference", *_TESTS]
    note = _PAIRS.format(metric_label(metric, unit=False))
    note += _BEST if against == "best" else ""
    return _table(title, note, tests[keys], pd.DataFrame(texts))


def _shift(rows):
    """Returns a table of ECE by scaling, objective and severity."""
    frames = []
    for calibrator in rows.shift["calibrator"].unique():
        means = statistics.shift_by_objective(rows.shift, calibrator)
        if means["severity"].any():
            frames.append(means.assign(calibrator=calibrator))
    if not frames:
        return None
    frame = pd.concat(frames, ignore_index=True)
    competes = statistics.summarize(rows.results, ["ece"]).competes
    best = pd.Series(False, index=frame.index)
    if competes is not None and frame["objective"].nunique() > 1:
        means = frame["mean"].where(frame["objective"].map(competes))
        lowest = means.groupby([frame["calibrator"], frame["severity"]])
        best = means.eq(lowest.transform("min")) & (frame["count"] > 1)
    frame["best"] = best
    frame["text"] = [
        text_of(*pair)
        for pair in zip(frame["mean"], frame["error"], strict=True)
    ]
    lines = frame.pivot(
        index=["calibrator", "objective"],
        columns="severity",
        values=["mean", "error", "text", "best", "count"],
    )
    lines = lines.reindex(
        frame[["calibrator", "objective"]].drop_duplicates().agg(tuple, axis=1)
    )
    severities = lines["mean"].columns
    calibrators, objectives = zip(*lines.index, strict=True)
    scaling = list(map(calibrator_label, calibrators))
    seeds = lines["count"].max(axis=1).astype(int).to_list()
    images = images_text(rows.results)
    clean = f"Clean, the same {images} images (%)" if images else "Clean (%)"
    titles = [
        f"Severity {level} (%)" if level else clean for level in severities
    ]
    numbers = {"objective": objectives, "seeds": seeds, "scaling": scaling}
    for level in severities:
        numbers[f"severity_{level}"] = lines["mean", level].to_numpy(float)
        error = lines["error", level].to_numpy(float)
        numbers[f"severity_{level}_error"] = error
    texts = {
        "Objective": _labels(objectives, competes),
        "Seeds": list(map(str, seeds)),
        "Scaling": scaling,
    }
    for title, level in zip(titles, severities, strict=True):
        texts[title] = lines["text", level].fillna("").to_list()
    marks = lines["best"].fillna(False).astype(bool)
    size = f", each of {images} images" if images else ""
    return _table(
        "ECE under shift",
        f"At each severity the mean over {frame['corruptions'].max()} "
        f"corruptions{size}; means ± standard errors over seeds of it. The ECE "
        "of fewer images is larger: compare severities with the clean column "
        f"here. {ECE} {_SCALING} The calibration split is clean. "
        f"{_UNDECIDED if competes is None else _RULE}",
        pd.DataFrame(numbers),
        pd.DataFrame(texts),
        marks.set_axis(titles, axis=1).reset_index(drop=True),
    )


def _hyperparameters(results):
    """Returns a table with one row per objective and its hyperparameters."""
    numbers = (
        results.groupby(["objective", "hyperparameters"], sort=False)["seed"]
        .agg(lambda seeds: ", ".join(map(str, seeds)))
        .rename("seeds")
        .reset_index()[["objective", "seeds", "hyperparameters"]]
    )
    texts = numbers.assign(objective=numbers["objective"].map(objective_label))
    return _table(
        "What every objective was trained with",
        "Settings of the losses, the weight of the secondary one (beta) and "
        "that of the l2 penalty.",
        numbers,
        texts.rename(columns=str.capitalize),
    )


def _labels(objectives, competes):
    """Returns labels; † marks objectives that give up too much accuracy."""
    return [
        objective_label(name)
        + ("" if competes is None or competes[name] else " †")
        for name in objectives
    ]


def _table(title, note, numbers, texts, marks=None):
    texts = texts.reset_index(drop=True)
    best = pd.DataFrame(False, index=texts.index, columns=texts.columns)
    if marks is not None:
        best[list(marks)] = marks.to_numpy(bool)
    return Table(title, note, numbers, texts, best)
