"""Means, tables and reports of the rows of the shift benchmark.

Rows are data frames with the columns of `shift.csv`.
"""

import numpy as np
import pandas as pd

from caltrain_tf.data import corruptions
from caltrain_tf.experiments import figures, statistics

# The clean test set among corruptions, and unscaled outputs among calibrators.
NONE = "none"
_TITLES = {
    "ece": ("ECE (%)", 100, 2),
    "accuracy": ("accuracy (%)", 100, 2),
    "nll": ("NLL", 1, 3),
    "brier": ("Brier score", 1, 3),
}
# Mean errors of AlexNet on ImageNet-C, relative to which mCE is defined, and on
# clean images; Hendrycks and Dietterich, 2019, appendix C.
_ALEXNET_ERRORS = dict(
    zip(
        corruptions.NAMES,
        (
            *(0.886, 0.894, 0.923, 0.820, 0.826, 0.786, 0.798, 0.867),
            *(0.827, 0.819, 0.565, 0.853, 0.646, 0.718, 0.607),
        ),
        strict=True,
    )
)
_ALEXNET_CLEAN_ERROR = 0.4348


def means_by_severity(rows, metric="ece"):
    """Returns means over corruptions for each severity and calibrator.

    Args:
        rows: Rows of one run.
        metric: Name of the metric.

    Returns:
        A data frame with `severity`, `calibrator`, `mean`, `error` and `count`.
        The error is `masson_loftus_error` over corruptions and calibrators; NaN
        with fewer than two of either, as for the clean test set.
    """
    rows = pd.DataFrame(rows)
    rows = rows[rows["metric"] == metric]
    means = []
    for severity, here in rows.groupby("severity"):
        table = here.pivot(
            index="corruption", columns="calibrator", values="value"
        )[here["calibrator"].unique()]
        error = float("nan")
        if min(table.shape) > 1:
            error = statistics.masson_loftus_error(table.to_numpy())
        for calibrator, column in table.items():
            values = (severity, calibrator, column.mean(), error, len(column))
            means.append(values)
    names = ["severity", "calibrator", "mean", "error", "count"]
    return pd.DataFrame(means, columns=names)


def compare_runs(runs, metric="ece", calibrator=NONE):
    """Returns means over the runs of each training objective.

    Args:
        runs: Pairs of an objective's name and the rows of one of its runs, all
            of the same sets.
        metric: Name of the metric.
        calibrator: Name of the calibrator.

    Returns:
        A data frame with `severity`, `objective`, `mean`, `error` and `count`:
        the mean over runs (seeds) of the mean over corruptions, its standard
        error, and the number of runs.
    """
    _check_same_sets(runs)
    means = pd.concat(
        [
            means_by_severity(rows, metric).assign(objective=objective)
            for objective, rows in runs
        ]
    )
    means = means[means["calibrator"] == calibrator]
    return (
        means.groupby(["severity", "objective"])["mean"]
        .agg(mean="mean", error="sem", count="count")
        .reset_index()
    )


def _check_same_sets(runs):
    keys = ["dataset", "corruption", "severity"]
    (first, rows), *others = runs
    expected = set(map(tuple, pd.DataFrame(rows)[keys].to_numpy()))
    for name, other in others:
        there = set(map(tuple, pd.DataFrame(other)[keys].to_numpy()))
        if there != expected:
            only = [sorted(expected - there)[:3], sorted(there - expected)[:3]]
            raise ValueError(
                "Runs of different sets cannot be compared. Received: only in "
                f"{first!r}: {only[0]}; only in {name!r}: {only[1]}"
            )


def severity_table(rows):
    """Returns a table for the terminal: means over corruptions by severity."""
    lines = {}
    for metric, (title, factor, digits) in _TITLES.items():
        for row in means_by_severity(rows, metric).itertuples():
            # Scaling by a temperature does not change the accuracy.
            if metric == "accuracy" and row.calibrator != NONE:
                continue
            label = title
            if metric != "accuracy":
                label += f", {figures.calibrator_label(row.calibrator)}"
            text = f"{factor * row.mean:.{digits}f}"
            if metric == "ece" and not np.isnan(row.error):
                text += f" ± {factor * row.error:.{digits}f}"
            lines.setdefault(label, {})[_head(row.severity)] = text
    note = (
        "± is one standard error within corruptions (Masson and Loftus): how "
        "much one calibrator\nis ahead of another varies by that over "
        "corruptions. It is pooled, so that all calibrators\nof a severity "
        "share it; how hard a corruption is does not count."
    )
    text = _to_text(lines, "mean over corruptions")
    return f"{text}\n{note}" if "±" in text else text


def comparison_table(runs, metric="ece"):
    """Returns a table of objectives under shift, means ± errors over seeds."""
    lines = {}
    for calibrator in pd.unique(pd.DataFrame(runs[0][1])["calibrator"]):
        for row in compare_runs(runs, metric, calibrator).itertuples():
            label = f"{row.objective}, {calibrator} ({row.count} runs)"
            text = f"{100 * row.mean:.2f}"
            if row.count > 1:
                text += f" ± {100 * row.error:.2f}"
            lines.setdefault(label, {})[_head(row.severity)] = text
    return _to_text(lines, f"{metric} (%)")


def _head(severity):
    return f"severity {severity}" if severity else "clean"


def _to_text(lines, corner):
    table = pd.DataFrame.from_dict(lines, orient="index").fillna("")
    return table.rename_axis(corner, axis="columns").to_string(col_space=14)


def robustness_report(rows, is_generated=False):
    """Returns the contents of `robustness_metrics.json`.

    Keys are those of the reports of robustness_metrics, with the calibrator's
    name after the metric's: `cifar10/ece`, `cifar10_c/ece/mean`,
    `cifar10_c/ece_ts/std`. For ImageNet there are also `imagenet_c/mce` and its
    parts, if `rows` has all published sets. The metrics of `rows` have the
    names and definitions of robustness_metrics.
    """
    rows = pd.DataFrame(rows)
    suffix = ("_" + rows["calibrator"]).where(rows["calibrator"] != NONE, "")
    rows = rows.assign(name=rows["metric"] + suffix)
    is_clean = rows["corruption"] == NONE
    report = {
        f"{row.dataset}/{row.name}": row.value
        for row in rows[is_clean].itertuples(index=False)
    }
    shifted = rows[rows["corruption"].isin(corruptions.NAMES)]
    for (dataset, name), here in shifted.groupby(["dataset", "name"]):
        report |= {
            f"{dataset}_c/{name}/mean": float(here["value"].mean()),
            f"{dataset}_c/{name}/std": float(here["value"].std(ddof=0)),
            f"{dataset}_c/{name}/count": len(here),
        }
    accuracy = rows[rows["name"] == "accuracy"].groupby("corruption")["value"]
    is_whole = (accuracy.count().reindex(corruptions.NAMES) == 5).all()
    if (rows["dataset"] == "imagenet").all() and is_whole and not is_generated:
        report |= _corruption_errors(1 - accuracy.mean())
    return report


def _corruption_errors(errors):
    errors_of_alexnet = pd.Series(_ALEXNET_ERRORS)
    shifted = errors[errors_of_alexnet.index]
    ratios = shifted / errors_of_alexnet
    relative = (shifted - errors[NONE]) / (
        errors_of_alexnet - _ALEXNET_CLEAN_ERROR
    )
    report = {f"imagenet_c/{name}/ce": float(v) for name, v in ratios.items()}
    for name, value in relative.items():
        report[f"imagenet_c/{name}/relative_ce"] = float(value)
    report["imagenet_c/mce"] = float(ratios.mean())
    report["imagenet_c/relative_mce"] = float(relative.mean())
    return report
