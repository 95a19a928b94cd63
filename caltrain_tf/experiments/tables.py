"""The tables of a report, on the page and as Markdown."""

import pathlib
import re
from itertools import repeat
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
LEFT = ("Objective", "Against", "Scaling", "Hyperparameters")
# Tables of `_measures`: title, note, metrics, and what they need one of.
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
    "calibrators": (
        "Other calibrators",
        f"{_ESTIMATES} Dirichlet calibration, and what `AutoCalibration` "
        "chooses, fitted to the calibration split.",
        "accuracy accuracy_dirichlet accuracy_auto ece ece_dirichlet ece_auto "
        "nll nll_dirichlet nll_auto",
        "ece_dirichlet ece_auto",
    ),
}
# Tables before the figures of a page; the others are folded, after them.
FIRST = ("results", "significance", "shift")
NAMES = (
    *(*FIRST, "paper", "measures", "memorisation", "calibrators"),
    *("significance_ts", "hyperparameters"),
)


class Table(NamedTuple):
    """A table of one setting; `*` ends the best cells of its columns."""

    title: str
    note: str
    texts: pd.DataFrame


def build_tables(rows):
    """Returns the tables of one setting, for which there are data, by name."""
    results = rows.results
    made = {n: _measures(results, *of) for n, of in _MEASURES.items()}
    made["significance"] = _tests(results, "ece")
    made["significance_ts"] = _tests(results, "ece_ts")
    made["shift"] = _shift(rows)
    made["paper"] = _paper(results)
    made["hyperparameters"] = _hyperparameters(results)
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
    counts = set(results.get("shift_examples", pd.Series()).dropna())
    return " or ".join(f"{int(count):,}" for count in sorted(counts))


def to_text(table):
    """Returns a table for the terminal."""
    text = _tabulate(table.texts, tablefmt="plain")
    if "*" in text:
        text += "\n* best of a column"
    if "†" in text:
        text += "\n† gives up 1% accuracy or more, and does not compete"
    return text


def to_markdown(tables):
    """Returns tables of several settings as Markdown, the best in bold."""
    lines = [f"# {next(iter(tables.values())).title}"]
    for setting, table in tables.items():
        texts = table.texts.map(_escape)
        texts = texts.replace(r"^([\d.± ]+)\\\*$", r"**\1**", regex=True)
        lines += ["", f"## {_escape(setting)}", "", _tabulate(texts)]
    notes = dict.fromkeys(table.note for table in tables.values())
    return "\n".join([*lines, "", *map(_escape, notes)]) + "\n"


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
    if not {*needs.split()} & {*there}:
        return None
    summary = statistics.summarize(results, there)
    texts = _cells(summary, there)
    texts = texts.where(~summary.best[there], texts + "*")
    texts = texts.rename(columns=figures.metric_label)
    # The count of the measure that the fewest runs have.
    seeds = summary.count[there].replace(0, pd.NA).min(axis=1).fillna(0)
    texts.insert(0, "Seeds", seeds.astype(int).astype(str))
    if summary.competes is None:
        return _table(title, f"{note} {_UNDECIDED}", texts)
    table = _table(title, f"{note} {_RULE}", texts)
    table.texts["Objective"] += ["" if c else " †" for c in summary.competes]
    return table


def _tests(results, metric):
    """Returns a table of paired tests against the primary loss alone."""
    if metric not in results:
        return None
    tests = statistics.paired_tests(results, metric).set_index("objective")
    if tests.empty:
        return None
    texts = pd.DataFrame(
        {
            "Against": tests["against"].map(figures.objective_label),
            "Seeds": tests["seeds"].astype(str),
            "Difference (points)": tests["difference"].map(text_of),
            "p": tests["p_value"].map("{:.4f}".format),
            "p, Holm": tests["p_holm"].map("{:.4f}".format),
        }
    )
    title = "Significance of a secondary loss"
    if metric == "ece_ts":
        title += " after temperature scaling"
    note = (
        "Two-sided paired t-tests over the common seeds of the difference in "
        f"{figures.metric_label(metric, unit=False)}. Holm's correction is "
        "over the tests of this table."
    )
    return _table(title, note, texts)


def _shift(rows):
    """Returns a table of ECE by scaling, objective and severity."""
    if not rows.shift["severity"].any():
        return None
    images = images_text(rows.results)
    size = f", each of {images} images" if images else ""
    count = statistics.shift_by_objective(rows.shift)["corruptions"].max()
    note = (
        f"At each severity the mean over {count} corruptions{size}; means ± "
        "standard errors over seeds of it. The ECE of fewer images is larger: "
        f"compare severities with the clean column here. {ECE} {_SCALING} The "
        "calibration split is clean."
    )
    made = []
    for calibrator in rows.shift["calibrator"].unique():
        means = statistics.common_sets(rows.shift, calibrator)
        means = means.groupby("severity").mean().T
        results = rows.results[["objective", "primary", "seed", "accuracy"]]
        results = results.join(
            means.add_prefix("ece_"), on=["objective", "seed"]
        )
        keys = " ".join(results.columns[4:])
        table = _measures(results, "ECE under shift", note, keys, keys)
        table.texts.insert(2, "Scaling", figures.calibrator_label(calibrator))
        made.append(table.texts)
    clean = f"Clean, the same {images} images (%)" if images else "Clean (%)"
    heads = [f"Severity {s} (%)" if s else clean for s in means]
    texts = pd.concat(made, ignore_index=True)
    texts.columns = ["Objective", "Seeds", "Scaling", *heads]
    return table._replace(texts=texts)


def read_paper():
    """Returns the paper's table of all results: 42 objectives, in percent."""
    return pd.read_csv(pathlib.Path(__file__).with_name("paper.csv"))


def _paper(results):
    """Returns a table that puts our results beside those of the paper."""
    # Embeddings of CIFAR-10 are `npz:embeddings/cifar10`.
    data = results["setting"].iloc[0].split()[0].rpartition("/")[2]
    paper = read_paper().set_index("objective")
    paper = paper[paper["data"] == data]
    shared = [n for n in results["objective"].unique() if n in paper.index]
    if not shared:
        return None
    keys = [k for k in _MEASURES["results"][2].split() if _has(results, k)]
    summary, paper = statistics.summarize(results, keys), paper.loc[shared]
    ours = _cells(summary, keys).loc[shared]
    texts = {"Seeds": summary.count["ece"].loc[shared].astype(str)}
    for key in keys:
        label = figures.metric_label(key)
        texts[label] = ours[key]
        theirs = paper[key] / 100, paper[f"{key}_error"] / 100
        texts[label.replace(" (", ", paper (")] = [*map(text_of, *theirs)]
    return _table(
        "Beside the paper",
        "Means ± standard errors, ours over seeds, the paper's over 10 runs of "
        "WRN-28-10 (ResNet-50 for ImageNet); its table of all results. It "
        "publishes no tuned values.",
        pd.DataFrame(texts),
    )


def _hyperparameters(results):
    """Returns a table with one row per objective and its hyperparameters."""
    names = {"seed": "Seeds", "hyperparameters": "Hyperparameters"}
    texts = results.astype({"seed": str}).rename(columns=names)
    groups = texts.groupby(["objective", "Hyperparameters"], sort=False)
    texts = groups["Seeds"].agg(", ".join).reset_index("Hyperparameters")
    return _table(
        "What every objective was trained with",
        "Settings of the losses, the weight of the secondary one (beta) and "
        "that of the l2 penalty.",
        texts[[*names.values()]],
    )


def _cells(summary, metrics):
    """Returns means ± errors as texts."""
    texts = {
        key: map(text_of, summary.mean[key], summary.error[key], repeat(key))
        for key in metrics
    }
    return pd.DataFrame(texts, index=summary.mean.index)


def _table(title, note, texts):
    """Returns a table of texts by objective."""
    texts.insert(0, "Objective", texts.index.map(figures.objective_label))
    return Table(title, note, texts.reset_index(drop=True))
