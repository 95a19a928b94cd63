"""Means and standard errors over corruptions and over runs."""

import collections

import numpy as np


def masson_loftus_error(values):
    """Standard error of condition means, without what subjects differ by.

    The variance is that of the interaction between subjects (here corruption
    types) and conditions (here calibrators), pooled over conditions: how hard
    a corruption is in itself does not count.

    Args:
        values: `(subjects, conditions)`, at least two of each.

    Returns:
        A float.

    Example:
        >>> masson_loftus_error([[1.0, 2.0], [11.0, 12.0], [5.0, 6.0]])
        0.0
        >>> round(masson_loftus_error([[1.0, 3.0], [2.0, 2.0]]), 4)
        0.7071

    Reference:
        Masson and Loftus, "Using confidence intervals for graphically based
        data interpretation", 2003.
    """
    values = np.asarray(values, float)
    if values.ndim != 2 or min(values.shape) < 2:
        raise ValueError(
            "`values` must be (subjects, conditions), at least two of each. "
            f"Received: shape={values.shape}"
        )
    subjects, conditions = values.shape
    residual = (
        values
        - values.mean(axis=0)
        - values.mean(axis=1, keepdims=True)
        + values.mean()
    )
    freedom = (subjects - 1) * (conditions - 1)
    return float(np.sqrt((residual**2).sum() / freedom / subjects))


def standard_error(values):
    """Standard error of the mean of a sample; NaN for fewer than two."""
    values = np.asarray(values, float)
    if len(values) < 2:
        return float("nan")
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def means_by_severity(rows, metric="ece"):
    """Means over corruptions, for each severity and calibrator.

    Args:
        rows: Of `evaluate_shift`, of one run.
        metric: Which metric.

    Returns:
        Dictionaries with `severity`, `calibrator`, `mean`, `error` and
        `count`. The error is that of `masson_loftus_error` over corruptions
        and calibrators; NaN where there are not two of each, as for the clean
        test set.
    """
    tables = collections.defaultdict(lambda: collections.defaultdict(dict))
    for row in rows:
        if row["metric"] == metric:
            table = tables[row["severity"]]
            table[row["calibrator"]][row["corruption"]] = row["value"]
    if not tables:
        raise ValueError(
            f"`rows` must hold the metric. Received: metric={metric!r}"
        )
    means = []
    for severity, table in sorted(tables.items()):
        values = np.array([list(column.values()) for column in table.values()])
        error = float("nan")
        if min(values.shape) > 1:
            error = masson_loftus_error(values.T)
        for calibrator, column in zip(table, values, strict=True):
            means.append(
                {
                    "severity": severity,
                    "calibrator": calibrator,
                    "mean": float(column.mean()),
                    "error": error,
                    "count": len(column),
                }
            )
    return means


def compare_runs(runs, metric="ece", calibrator="none"):
    """Means over the runs of each training objective.

    Args:
        runs: Pairs of an objective's name and the rows of a run of it.
        metric: Which metric.
        calibrator: Which calibrator.

    Returns:
        Dictionaries with `severity`, `objective`, `mean`, `error` and `count`:
        the mean over runs (seeds) of the mean over corruptions, its standard
        error, and the number of runs.
    """
    values = collections.defaultdict(list)
    for objective, rows in runs:
        for row in means_by_severity(rows, metric):
            if row["calibrator"] == calibrator:
                values[row["severity"], objective].append(row["mean"])
    return [
        {
            "severity": severity,
            "objective": objective,
            "mean": float(np.mean(means)),
            "error": standard_error(means),
            "count": len(means),
        }
        for (severity, objective), means in sorted(values.items())
    ]
