"""The tables of a report, on the page and as CSV, Markdown and LaTeX."""

import importlib.resources
import re
from typing import NamedTuple

import pandas as pd

from caltrain_tf.experiments import figures, statistics

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
_TITLES = {
    "difference": "Difference (points)",
    "t_p_value": "p, t-test",
    "t_p_holm": "p, t-test, Holm",
    "exact_p_value": "p, sign flips",
    "exact_p_holm": "p, sign flips, Holm",
    "smallest_possible": "Smallest p of sign flips",
}
LEFT = ("Objective", "Against", "Scaling", "Hyperparameters")
# Tables of `_measures`: title, note, metrics, and the one that they need.
_MEASURES = {
    "results": (
        "Accuracy and calibration error",
        f"{_ESTIMATES} {ECE} {_SCALING}",
        "accuracy ece ece_ts ece_ts_sb_ece",
        "accuracy",
    ),
    "measures": (
        "Other measures",
        f"{_ESTIMATES} Without scaling. Mean-sweep CE and marginal ECE are l2 "
        "over bins of equal mass; the KS error is l1. The sum over classes is "
        "the scale of the paper.",
        "ks_error mean_sweep_ce marginal_ece marginal_ece_sum ece_debiased "
        "brier nll average_uncertainty",
        "ks_error",
    ),
    "memorisation": (
        "Is the training set memorised?",
        f"{_ESTIMATES} If nearly all training images are classified correctly, "
        "with a small training ECE, a secondary loss finds nothing to improve "
        "there. l1 is over bins of equal width, on training images without "
        "augmentation.",
        "train_accuracy train_ece train_ece_l1 ece_l1 test_to_train_ece_l1 "
        "accuracy ece",
        "train_accuracy",
    ),
    "dirichlet": (
        "Dirichlet calibration",
        f"{_ESTIMATES} Fitted to the calibration split, with penalties chosen "
        "by cross-validation.",
        "accuracy accuracy_dirichlet ece ece_dirichlet nll nll_dirichlet",
        "ece_dirichlet",
    ),
}
# Tables before the figures of a page; the others are folded, after them.
FIRST = ("results", "significance", "shift")
NAMES = (
    *(*FIRST, "paper", "measures", "memorisation", "dirichlet"),
    *("significance_ts", "hyperparameters"),
)


class Table(NamedTuple):
    """A table of one setting."""

    title: str
    note: str
    numbers: pd.DataFrame  # For CSV.
    texts: pd.DataFrame  # The cells as they are shown.
    best: pd.DataFrame  # True for marked cells.


def build_tables(rows):
    """Returns the tables of one setting, for which there are data, by name."""
    results = rows.results
    title = "Significance of a secondary loss"
    made = {n: _measures(results, *of) for n, of in _MEASURES.items()}
    made |= {
        "significance": _tests(results, title, "ece"),
        "significance_ts": _tests(
            results, f"{title} after temperature scaling", "ece_ts"
        ),
        "shift": _shift(rows),
        "paper": _paper(results),
        "hyperparameters": _hyperparameters(results),
    }
    return {name: made[name] for name in NAMES if made[name] is not None}


def results_table(results):
    """Returns the main table of runs of one setting."""
    return _measures(results, *_MEASURES["results"])


def text_of(mean, error=float("nan"), metric="ece"):
    """Returns a number as text, with its standard error: `12.50 ± 1.00`."""
    factor = figures.metric_factor(metric)
    digits = 2 if factor == 100 else 4
    numbers = [number for number in (mean, error) if number == number]
    return " ± ".join(f"{factor * number:.{digits}f}" for number in numbers)


def images_text(results):
    """Returns the number of images in a shifted set, "" if unknown."""
    counts = results.get("shift_examples", pd.Series(dtype="Int64")).dropna()
    return " or ".join(f"{count:,}" for count in sorted(set(counts)))


def to_csv(tables):
    """Returns the numbers of tables of several settings as CSV."""
    frames = {name: table.numbers for name, table in tables.items()}
    frame = pd.concat(frames, names=["setting", None])
    frame = frame.reset_index("setting")
    return frame.to_csv(index=False, lineterminator="\n")


def to_text(table):
    """Returns a table for the terminal; `*` marks the best."""
    texts = table.texts.where(~table.best, table.texts + "*")
    text = _tabulate(texts, tablefmt="plain")
    if "*" in text:
        text += "\n* best of a column"
    if "†" in text:
        text += "\n† gives up 1% accuracy or more, and does not compete"
    return text


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
        marks = table.best.map({True: "textbf:--rwrap", False: ""}.get)
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


def _has(results, metric):
    return metric in results and results[metric].notna().any()


def _measures(results, title, note, metrics, needs):
    """Returns a table of means ± standard errors, with the best marked."""
    there = [key for key in metrics.split() if _has(results, key)]
    if needs not in there:
        return None
    mean, error, count, best, competes = statistics.summarize(results, there)
    # The count of the measure that the fewest runs have.
    seeds = count[there].replace(0, pd.NA).min(axis=1).fillna(0).astype(int)
    numbers = {"objective": mean.index, "seeds": seeds}
    for key in there:
        numbers |= {key: mean[key], f"{key}_error": error[key]}
    best = best[there]
    numbers["best"] = best.apply(lambda row: " ".join(row.index[row]), axis=1)
    numbers["too_inaccurate"] = False if competes is None else ~competes
    titles = {key: figures.metric_label(key) for key in there}
    return _table(title, note, pd.DataFrame(numbers), titles, best, competes)


def _tests(results, title, metric):
    """Returns a table of paired tests against the primary loss alone."""
    if not _has(results, metric):
        return None
    tests = statistics.paired_tests(results, metric)
    if tests.empty:
        return None
    note = _PAIRS.format(figures.metric_label(metric, unit=False))
    keys = ["objective", "against", "seeds", *_TITLES]
    return _table(title, note, tests[keys], _TITLES)


def _shift(rows):
    """Returns a table of ECE by scaling, objective and severity."""
    frames = [
        statistics.shift_by_objective(rows.shift, calibrator).assign(
            scaling=figures.calibrator_label(calibrator)
        )
        for calibrator in rows.shift["calibrator"].unique()
    ]
    if not any(frame["severity"].any() for frame in frames):
        return None
    frame = pd.concat(frames, ignore_index=True)
    competes = statistics.summarize(rows.results, ["ece"]).competes
    frame["best"] = False
    if competes is not None and frame["objective"].nunique() > 1:
        means = frame["mean"].where(frame["objective"].map(competes))
        lowest = means.groupby([frame["scaling"], frame["severity"]])
        best = means.eq(lowest.transform("min")) & (frame["count"] > 1)
        frame["best"] = best
    keys = ["scaling", "objective"]
    wide = frame.pivot(index=keys, columns="severity")
    wide = wide.reindex(pd.MultiIndex.from_frame(frame[keys].drop_duplicates()))
    seeds = wide["count"].max(axis=1).astype(int).rename("seeds").reset_index()
    numbers, marks = seeds[["objective", "seeds", "scaling"]], {}
    images, titles = images_text(rows.results), {}
    for severity in wide["mean"]:
        key = f"severity_{severity}"
        titles[key] = f"Severity {severity} (%)"
        marks[key] = wide["best", severity].to_numpy(bool)
        numbers[key] = wide["mean", severity].to_numpy()
        numbers[f"{key}_error"] = wide["error", severity].to_numpy()
    clean = f"Clean, the same {images} images (%)" if images else "Clean (%)"
    titles["severity_0"] = clean
    size = f", each of {images} images" if images else ""
    return _table(
        "ECE under shift",
        f"At each severity the mean over {frame['corruptions'].max()} "
        f"corruptions{size}; means ± standard errors over seeds of it. The ECE "
        "of fewer images is larger: compare severities with the clean column "
        f"here. {ECE} {_SCALING} The calibration split is clean.",
        numbers,
        titles,
        pd.DataFrame(marks),
        competes,
    )


def read_paper():
    """Returns the paper's table of all results: 42 objectives, in percent."""
    path = importlib.resources.files("caltrain_tf") / "experiments/paper.csv"
    with path.open() as file:
        return pd.read_csv(file)


def _paper(results):
    """Returns a table that puts our results beside those of the paper."""
    words = results["setting"].iloc[0].split()
    if not {"wrn-28-10", "resnet-50"} & set(words):
        return None
    paper = read_paper().set_index(["data", "objective"]) / 100
    keys = _MEASURES["results"][2].split()
    mean, error, count, _, _ = statistics.summarize(results, keys)
    shared = [n for n in mean.index if (words[0], n) in paper.index]
    if not shared:
        return None
    paper = paper.loc[words[0]].loc[shared]
    numbers = {"objective": shared, "seeds": count.loc[shared, "ece"]}
    titles = {}
    for key in keys:
        numbers[key] = mean.loc[shared, key]
        numbers[f"{key}_error"] = error.loc[shared, key]
        numbers[f"{key}_paper"] = paper[key]
        numbers[f"{key}_paper_error"] = paper[f"{key}_error"]
        titles[key] = figures.metric_label(key)
        titles[f"{key}_paper"] = titles[key].replace(" (%)", ", paper (%)")
    return _table(
        "Beside the paper",
        "Means ± standard errors, ours over seeds, the paper's over 10 runs; "
        "its table of all results. It publishes no tuned values.",
        pd.DataFrame(numbers),
        titles,
    )


def _hyperparameters(results):
    """Returns a table with one row per objective and its hyperparameters."""
    seeds = results.assign(seeds=results["seed"].astype(str))
    numbers = seeds.groupby(
        ["objective", "hyperparameters"], sort=False, as_index=False
    )["seeds"].agg(", ".join)
    return _table(
        "What every objective was trained with",
        "Settings of the losses, the weight of the secondary one (beta) and "
        "that of the l2 penalty.",
        numbers[["objective", "seeds", "hyperparameters"]],
        {"hyperparameters": "Hyperparameters"},
    )


def _table(title, note, numbers, titles, best=None, competes=None):
    """Returns a table whose cells show the columns that have titles.

    `best` marks cells of these columns, and † is behind objectives that do not
    compete.
    """
    texts, marks = {}, {}
    for key, column in numbers.items():
        if key in ("objective", "against"):
            texts[key.capitalize()] = column.map(figures.objective_label)
        elif key in ("seeds", "scaling"):
            texts[key.capitalize()] = column.astype(str)
        elif key in titles and column.dtype != float:
            texts[titles[key]] = column
        elif key in titles:
            metric = "ece" if key.startswith(("severity", "diff")) else key
            errors = numbers.get(f"{key}_error", column * float("nan"))
            texts[titles[key]] = [
                text_of(*pair, metric)
                for pair in zip(column, errors, strict=True)
            ]
        if best is not None and key in best:
            marks[titles[key]] = best[key].to_numpy(bool)
    if best is not None:
        note += f" {_UNDECIDED if competes is None else _RULE}"
    if competes is not None:
        behind = numbers["objective"].map(competes).map({True: "", False: " †"})
        texts["Objective"] = texts["Objective"] + behind
    texts = pd.DataFrame(texts).reset_index(drop=True)
    shown = pd.DataFrame(False, index=texts.index, columns=texts.columns)
    return Table(title, note, numbers, texts, shown.assign(**marks))
