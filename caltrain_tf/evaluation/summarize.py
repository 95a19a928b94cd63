"""Means over seeds of every objective, and which of them are best."""

import math

import numpy as np

from caltrain_tf.evaluation.result_rows import better_sign
from caltrain_tf.evaluation.result_rows import objective_parts
from caltrain_tf.evaluation.result_rows import values_by_objective
from caltrain_tf.evaluation.statistics import standard_error
from caltrain_tf.evaluation.within_accuracy import within_accuracy


def summarize_results(
    rows,
    metrics=("accuracy", "ece", "ece_ts", "ece_ts_sb_ece"),
    max_accuracy_loss=0.01,
):
    """Means and standard errors over seeds, as the paper's tables have them.

    Args:
        rows: Result rows, a dictionary a run: `setting`, `objective`,
            `primary`, `secondary` ("" for none), `interleaved`, `seed` and the
            metrics.
        metrics: Which metrics; `accuracy` is always added.
        max_accuracy_loss: How much accuracy an objective may give up, against
            the most accurate primary loss alone, to be marked as best: 0.01 as
            in the paper's table of the best.

    Returns:
        A dictionary for each objective of each setting, in the order of the
        rows: `setting`, `objective`, `primary`, `secondary`, `interleaved`;
        `mean`, `error` (standard error, NaN for one run), `count` (of runs) and
        `best`, each a dictionary from metrics; and `within_accuracy`, whether
        the mean accuracy is less than `max_accuracy_loss` below that of the
        most accurate primary loss alone (of all objectives where none was run
        alone). `best` is true for the best mean of the setting among those
        within. Metrics that no run of an objective has are absent.

    Example:
        >>> rows = [
        ...     {"setting": "s", "objective": name, "primary": name,
        ...      "secondary": "", "interleaved": False, "seed": seed,
        ...      "accuracy": accuracy, "ece": ece + seed / 100}
        ...     for name, accuracy, ece in (("nll", 0.9, 0.05),
        ...                                 ("focal", 0.8, 0.01))
        ...     for seed in (0, 1)
        ... ]
        >>> nll, focal = summarize_results(rows, ["ece"])
        >>> round(nll["mean"]["ece"], 4), round(nll["error"]["ece"], 4)
        (0.055, 0.005)
        >>> nll["best"]["ece"], focal["within_accuracy"]
        (True, False)
    """
    summaries = {
        key: {
            "setting": key[0],
            "objective": key[1],
            **part,
            "mean": {},
            "error": {},
            "count": {},
            "best": {},
        }
        for key, part in objective_parts(rows).items()
    }
    metrics = list(dict.fromkeys(("accuracy", *metrics)))
    for metric in metrics:
        for key, seeds in values_by_objective(rows, metric).items():
            values = list(seeds.values())
            summaries[key]["mean"][metric] = float(np.mean(values))
            summaries[key]["error"][metric] = standard_error(values)
            summaries[key]["count"][metric] = len(values)
    summaries = list(summaries.values())
    for setting in dict.fromkeys(row["setting"] for row in rows):
        here = [s for s in summaries if s["setting"] == setting]
        _mark_within_accuracy(here, max_accuracy_loss)
        for metric in metrics:
            _mark_best(here, metric)
    return summaries


def _mark_within_accuracy(summaries, max_accuracy_loss):
    accuracies = [
        {"accuracy": s["mean"].get("accuracy", math.nan)} for s in summaries
    ]
    alone = [
        s["mean"]["accuracy"]
        for s in summaries
        if not s["secondary"]
        and not s["interleaved"]
        and "accuracy" in s["mean"]
    ]
    marks = within_accuracy(
        accuracies,
        tolerance=max_accuracy_loss,
        reference=max(alone, default=None),
    )
    for summary, mark in zip(summaries, marks, strict=True):
        summary["within_accuracy"] = mark


def _mark_best(summaries, metric):
    sign = better_sign(metric)
    here = [s for s in summaries if metric in s["mean"]]
    scores = [sign * s["mean"][metric] for s in here if s["within_accuracy"]]
    best = max(scores, default=np.nan) if sign else np.nan
    for summary in here:
        summary["best"][metric] = bool(
            summary["within_accuracy"]
            and sign * summary["mean"][metric] == best
        )
