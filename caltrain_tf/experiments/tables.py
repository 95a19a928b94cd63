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
    "Two-sided paired t-tests over the common seeds of the difference in {}. "
    "Holm's correction is over the tests of this table."
)
_TITLES = {
    "difference": "Difference (points)",
    "p_value": "p",
    "p_holm": "p, Holm",
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
    summary = statistics.summarize(results, there)
    best, competes = summary.best[there], summary.competes
    # The count of the measure that the fewest runs have.
    counts = summary.count[there].replace(0, pd.NA)
    numbers = (
        summary.mean[there]
        .join(summary.error[there].add_suffix("_error"))
        .assign(
            seeds=counts.min(axis=1).fillna(0).astype(int),
            best=best.apply(lambda row: " ".join(row.index[row]), axis=1),
            too_inaccurate=False if competes is None else ~competes,
        )
    )
    titles = {key: figures.metric_label(key) for key in there}
    return _table(title, note, numbers.reset_index(), titles, best, competes)


def _tests(results, title, metric):
    """Returns a table of paired tests against the primary loss alone."""
    if not _has(results, metric):
        return None
    tests = statistics.paired_tests(results, metric)
    if tests.empty:
        return None
    note = _PAIRS.format(figures.metric_label(metric, unit=False))
    return _table(title, note, tests, _TITLES)


def _shift(rows):
    """Returns a table of ECE by scaling, objective and severity."""
    if not rows.shift["severity"].any():
        return None
    frame = pd.concat(
        statistics.shift_by_objective(rows.shift, calibrator).assign(
            scaling=figures.calibrator_label(calibrator)
        )
        for calibrator in rows.shift["calibrator"].unique()
    )
    wide = frame.pivot_table(
        ["mean", "error", "count"],
        ["scaling", "objective"],
        "severity",
        sort=False,
        dropna=False,
    )
    mean, objectives = wide["mean"], wide.index.get_level_values("objective")
    competes = statistics.summarize(rows.results, ["ece"]).competes
    best = mean.isna()
    if competes is not None and objectives.nunique() > 1:
        allowed = mean[objectives.map(competes)]
        lowest = allowed.groupby("scaling").transform("min").reindex(mean.index)
        best = mean.eq(lowest) & (wide["count"] > 1)
    numbers = mean.join(wide["error"].add_suffix("_error"))
    numbers = numbers.add_prefix("severity_")
    numbers["seeds"] = wide["count"].max(axis=1).astype(int)
    images = images_text(rows.results)
    titles = {f"severity_{s}": f"Severity {s} (%)" for s in mean}
    clean = f"Clean, the same {images} images (%)" if images else "Clean (%)"
    titles["severity_0"] = clean
    size = f", each of {images} images" if images else ""
    return _table(
        "ECE under shift",
        f"At each severity the mean over {frame['corruptions'].max()} "
        f"corruptions{size}; means ± standard errors over seeds of it. The ECE "
        "of fewer images is larger: compare severities with the clean column "
        f"here. {ECE} {_SCALING} The calibration split is clean.",
        numbers.reset_index(),
        titles,
        best.add_prefix("severity_"),
        competes,
    )


def read_paper():
    """Returns the paper's table of all results: 42 objectives, in percent."""
    path = importlib.resources.files("caltrain_tf") / "experiments/paper.csv"
    with path.open() as file:
        return pd.read_csv(file)


def _paper(results):
    """Returns a table that puts our results beside those of the paper."""
    data, *words = results["setting"].iloc[0].split()
    if not {"wrn-28-10", "resnet-50"} & set(words):
        return None
    keys = _MEASURES["results"][2].split()
    mean, error, count, _, _ = statistics.summarize(results, keys)
    paper = read_paper().query("data == @data").set_index("objective")
    paper = paper.drop(columns="data") / 100
    paper.columns = paper.columns.str.replace(
        "(_error)?$", r"_paper\1", regex=True, n=1
    )
    ours = mean[keys].join(error[keys].add_suffix("_error"))
    numbers = ours.join(paper, how="inner").assign(seeds=count["ece"])
    if numbers.empty:
        return None
    titles = {}
    for key in keys:
        titles[key] = figures.metric_label(key)
        titles[f"{key}_paper"] = titles[key].replace(" (%)", ", paper (%)")
    return _table(
        "Beside the paper",
        "Means ± standard errors, ours over seeds, the paper's over 10 runs; "
        "its table of all results. It publishes no tuned values.",
        numbers.reset_index(),
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
        numbers,
        {"hyperparameters": "Hyperparameters"},
    )


def _table(title, note, numbers, titles, best=None, competes=None):
    """Returns a table whose cells show the columns that have titles.

    `best` marks cells of these columns, and † is behind objectives that do not
    compete.
    """
    texts = {}
    for key in ("objective", "against"):
        if key in numbers:
            texts[key.capitalize()] = numbers[key].map(figures.objective_label)
    for key in ("seeds", "scaling"):
        if key in numbers:
            texts[key.capitalize()] = numbers[key].astype(str)
    for key, name in titles.items():
        column = numbers[key]
        if column.dtype == float:
            metric = "ece" if key.startswith(("severity", "diff")) else key
            errors = numbers.get(f"{key}_error", column * float("nan"))
            pairs = zip(column, errors, strict=True)
            column = [text_of(*pair, metric) for pair in pairs]
        texts[name] = column
    texts = pd.DataFrame(texts)
    marks = pd.DataFrame(False, index=texts.index, columns=texts.columns)
    if best is not None:
        marks[best.columns.map(titles)] = best.to_numpy()
        note += f" {_UNDECIDED if competes is None else _RULE}"
    if competes is not None:
        behind = numbers["objective"].map(competes).map({True: "", False: " †"})
        texts["Objective"] += behind
    return Table(title, note, numbers, texts, marks)
