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
            column = tables[row["severity"]][row["calibrator"]]
            if row["corruption"] in column:
                raise ValueError(
                    "`rows` must be of one run, with one value of each set. "
                    f"Received: two of {_named(row)}"
                )
            column[row["corruption"]] = row["value"]
    if not tables:
        raise ValueError(
            f"`rows` must hold the metric. Received: metric={metric!r}"
        )
    means = []
    for severity, table in sorted(tables.items()):
        values = _columns(table, severity)
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

    Runs must be of the same data set, corruptions and severities: means over
    others are not comparable.

    Returns:
        Dictionaries with `severity`, `objective`, `mean`, `error` and `count`:
        the mean over runs (seeds) of the mean over corruptions, its standard
        error, and the number of runs.
    """
    _check_same_sets(runs)
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


def _columns(table, severity):
    """Returns values `(calibrators, corruptions)`, in one order."""
    (first, column), *others = table.items()
    for name, other in others:
        if set(other) != set(column):
            raise ValueError(
                "`rows` must hold the same corruptions for each calibrator. "
                f"Received: at severity {severity}, {sorted(column)} for "
                f"{first!r}, {sorted(other)} for {name!r}"
            )
    return np.array(
        [[other[key] for key in column] for other in table.values()]
    )


def _named(row):
    keys = ("corruption", "severity", "calibrator", "metric")
    return ", ".join(f"{key}={row[key]!r}" for key in keys)


def _check_same_sets(runs):
    if not runs:
        raise ValueError("`runs` must hold at least one run. Received: none")
    (first, rows), *others = runs
    for name, other in others:
        for what, keys in (
            ("data set", ("dataset",)),
            ("corruptions and severities", ("corruption", "severity")),
        ):
            here, there = (
                {tuple(row[key] for key in keys) for row in part}
                for part in (rows, other)
            )
            if here != there:
                raise ValueError(
                    f"`runs` must share their {what}. Received: {first!r} "
                    f"with {_list(here - there)} that {name!r} has not, which "
                    f"has {_list(there - here)} instead"
                )


def _list(keys, shown=3):
    """Returns the first few as text."""
    texts = [" ".join(map(str, key)) for key in sorted(keys)]
    more = [f"{len(texts) - shown} more"] if len(texts) > shown else []
    return ", ".join(texts[:shown] + more) or "nothing"
