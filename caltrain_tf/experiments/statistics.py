"""Comparisons of objectives over seeds: means, effect sizes, paired tests.

`results` and `shift` are frames of the `Rows` of `collect.py`.
"""

import math
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

# Metrics for which lower is better. A calibrator's name may follow: `ece_ts`.
_ERRORS = ("ece_", "nll_", "brier_", "ks_error_", "mean_sweep_ce_", "marginal_")
# The accuracy that an objective may give up: "less than 1%" in the paper.
TOLERANCE = 0.01
# That of 0.91 - 0.9 is smaller, a difference of accuracies is larger.
_ROUNDING = 1e-9


def better_sign(metric):
    """Returns 1 if higher is better, -1 if lower is better, 0 otherwise."""
    if metric == "accuracy":
        return 1
    return -1 if f"{metric}_".startswith(_ERRORS) else 0


def masson_loftus_error(values):
    """Returns the standard error of the means of `(subjects, conditions)`.

    It does not count how hard a subject, a corruption, is (Masson and Loftus,
    2003).
    """
    values = np.asarray(values, float)
    if min(values.shape) < 2:
        return math.nan
    residual = values - values.mean(axis=0)
    residual -= residual.mean(axis=1, keepdims=True)
    subjects, conditions = values.shape
    freedom = (subjects - 1) * (conditions - 1)
    return float(np.sqrt((residual**2).sum() / freedom / subjects))


def cohens_d(treated, baseline):
    """Returns Cohen's d with pooled deviation, above 0 if treated is lower."""
    freedom = len(treated) - 1, len(baseline) - 1
    if min(freedom) < 1:
        return math.nan
    variances = np.var(treated, ddof=1), np.var(baseline, ddof=1)
    deviation = np.sqrt(np.average(variances, weights=freedom))
    return float((np.mean(baseline) - np.mean(treated)) / deviation)


def holm(p_values):
    """Returns p-values with Holm's correction; NaN is not counted as a test."""
    p_values = pd.Series(p_values, dtype=float)
    ordered = p_values.dropna().sort_values()
    steps = ordered * np.arange(len(ordered), 0, -1)
    return steps.cummax().clip(upper=1).reindex(p_values.index)


def within_accuracy(accuracies, reference=None):
    """Returns which accuracies are (strictly) less than 1% below the best."""
    reference = accuracies.max() if reference is None else reference
    return reference - accuracies < TOLERANCE - _ROUNDING


def best_within_accuracy(rows):
    """Returns the row of the lowest ECE that gives up less than 1% accuracy."""
    frame = pd.DataFrame(rows)[["ece", "accuracy"]]
    frame = frame[np.isfinite(frame).all(axis=1)]
    frame = frame[within_accuracy(frame["accuracy"])]
    order = {"ascending": [True, False], "kind": "stable"}
    return rows[frame.sort_values(["ece", "accuracy"], **order).index[0]]


class Summary(NamedTuple):
    """Frames of objectives and metrics."""

    mean: pd.DataFrame  # Over seeds.
    error: pd.DataFrame  # Standard errors; NaN for one run.
    count: pd.DataFrame  # Numbers of runs.
    best: pd.DataFrame  # Whether a mean is marked as best.
    # Whether each objective gives up less than 1% accuracy; None if the
    # standard errors of the accuracies are too large to tell.
    competes: pd.Series | None


def summarize(results, metrics):
    """Returns means and standard errors of one setting, and marks the best.

    The best has several runs, and gives up less than 1% accuracy against the
    most accurate primary loss alone (or objective, if there is none). Nothing
    is marked where the standard error of an accuracy exceeds 1%, and its
    distance from that limit.
    """
    metrics = list(dict.fromkeys(("accuracy", *metrics)))
    groups = results.groupby("objective", sort=False)[metrics]
    mean, error, count = groups.mean(), groups.sem(), groups.count()
    accuracy, spread = mean["accuracy"], error["accuracy"]
    alone = accuracy[accuracy.index.isin(results["primary"])]
    reference = (alone if len(alone) else accuracy).max()
    best = pd.DataFrame(False, index=mean.index, columns=metrics)
    from_limit = (reference - accuracy - TOLERANCE).abs()
    if ((spread > TOLERANCE + _ROUNDING) & (from_limit < spread)).any():
        return Summary(mean, error, count, best, None)
    competes = within_accuracy(accuracy, reference)
    for metric in filter(better_sign, metrics):
        scores = better_sign(metric) * mean[metric].where(competes)
        best[metric] = scores.eq(scores.max()) & (count[metric] > 1)
    return Summary(mean, error, count, best & (len(mean) > 1), competes)


def effect_sizes(results, metric="ece"):
    """Returns Cohen's `d` of every secondary loss, against the primary alone.

    The paper's figure 1 does not say how it combines data sets and primary
    losses; the mean over these rows gives the order of its caption.
    """
    keys = ["setting", "primary", "secondary", "interleaved"]
    groups = results.dropna(subset=metric).groupby(keys, sort=False)[metric]
    values = dict(list(groups))
    rows = [
        (*key, metric, cohens_d(treated, values.get((*key[:2], "", False), ())))
        for key, treated in values.items()
        if key[2]
    ]
    return pd.DataFrame(rows, columns=[*keys, "metric", "d"]).dropna(subset="d")


def gains(results):
    """Returns what the secondary loss of each run changes in the ECE.

    `training_gap` is confidence - accuracy of the primary loss alone with the
    same seed, on its training images.
    """
    keys = ["setting", "primary", "seed"]
    gap = results["train_confidence"] - results["train_accuracy"]
    alone = results.assign(training_gap=gap)[results["secondary"] == ""]
    pairs = results[results["secondary"] != ""].merge(
        alone[[*keys, "training_gap", "ece"]], on=keys, suffixes=("", "_alone")
    )
    change = pairs["ece"] - pairs["ece_alone"]
    return pairs[[*keys, "objective", "training_gap"]].assign(change=change)


def paired_tests(results, metric="ece"):
    """Returns paired t-tests of secondary losses against the primary alone.

    `low` and `high` are the 95% interval of the mean `difference`.
    """
    values = results.pivot(index="seed", columns="objective", values=metric)
    tests = []
    for row in results.drop_duplicates("objective").itertuples():
        if row.primary == row.objective or row.primary not in values:
            continue
        change = (values[row.objective] - values[row.primary]).dropna()
        if len(change) > 1:
            test = stats.ttest_1samp(change, 0)
            interval = test.confidence_interval(0.95)
            numbers = (change.mean(), *interval, len(change), test.pvalue)
            tests.append((row.objective, row.primary, *numbers))
    names = "objective against difference low high seeds p_value".split()
    tests = pd.DataFrame(tests, columns=names)
    return tests.assign(p_holm=holm(tests["p_value"]))


def common_sets(shift, calibrator="none", metric="ece"):
    """Returns a metric of the sets that all runs have, a column per run."""
    here = shift.query("calibrator == @calibrator and metric == @metric")
    return here.pivot_table(
        "value", ["severity", "corruption"], ["objective", "seed"], sort=False
    ).dropna()


def shift_by_objective(shift, calibrator="none", metric="ece"):
    """Returns `mean`, `error` and `count` over runs, by objective and severity.

    The value of a run is its mean over the corruptions that all runs have.
    """
    sets = common_sets(shift, calibrator, metric)
    runs = sets.groupby("severity").mean().T.stack().rename("value")
    groups = runs.groupby(["objective", "severity"], sort=False)
    means = groups.agg(mean="mean", error="sem", count="count")
    names = set(sets.index.get_level_values("corruption")) - {"none"}
    return means.reset_index().assign(corruptions=len(names))


def shift_by_calibrator(shift, metric="ece"):
    """Returns `mean` and `error` over corruptions: paper's figures 2 and 9."""
    cells = shift[shift["metric"] == metric].pivot_table(
        "value", ["severity", "corruption"], "calibrator", sort=False
    )
    groups = cells.groupby("severity")
    means = groups.mean().stack().rename("mean").reset_index()
    errors = groups.apply(masson_loftus_error)
    return means.assign(error=means["severity"].map(errors))
