"""Comparisons of objectives over runs: means, effect sizes and paired tests.

Rows are dictionaries, one per run, or a pandas frame of them: `setting` (what
the runs share), `objective`, `primary`, `secondary` ("" for none),
`interleaved`, `seed` and any number of metrics.
"""

import difflib
import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from caltrain_tf import checks

# Metrics for which lower is better. A calibrator's name may follow: `ece`,
# `ece_ts`.
_ERRORS = (
    "ece",
    "nll",
    "brier",
    "ks_error",
    "mean_sweep_ce",
    "marginal_ece",
    "smooth_ece",
)
# Different accuracies of a split differ by at least 1e-6; the rounding error of
# 0.91 - 0.9 is far smaller.
_ROUNDING = 1e-9
# Up to this many pairs, the sign-flip test uses all 2^n sign patterns.
_MAX_EXACT = 14


def standard_error(values):
    """Returns the standard error of the mean; NaN for fewer than two values."""
    return float(stats.sem(values)) if len(values) > 1 else math.nan


def masson_loftus_error(values):
    """Returns the standard error of condition means within subjects.

    The variance is that of the interaction between subjects (here corruption
    types) and conditions (here calibrators), pooled over conditions, so it does
    not include how much harder one corruption is than another. All conditions
    share one error.

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


def cohens_d(treated, baseline, corrected=False):
    """Returns Cohen's d, which is positive if the treated values are lower.

    d = (mean of baseline - mean of treated) / s, where s^2 is the pooled
    variance of the two samples, (n_1 - 1) s_1^2 + (n_2 - 1) s_2^2 over
    n_1 + n_2 - 2. For an error such as ECE, lower is better.

    Args:
        treated: Values over seeds, such as the ECE of runs with a secondary
            loss.
        baseline: Values over seeds, such as those of the primary loss alone.
        corrected: Whether to correct the bias of small samples (Hedges' g): d
            is multiplied by 1 - 3 / (4 (n_1 + n_2 - 2) - 1), which is 0.8 for
            three seeds of each.

    Returns:
        A float; NaN if either sample has fewer than two values or neither
        sample varies.

    Example:
        >>> round(cohens_d([0.02, 0.03, 0.04], [0.05, 0.06, 0.07]), 4)
        3.0
        >>> round(cohens_d([0.02, 0.03, 0.04], [0.05, 0.06, 0.07], True), 4)
        2.4
        >>> cohens_d([0.02], [0.05])
        nan

    Reference:
        Cohen, "Statistical Power Analysis for the Behavioral Sciences", 1988;
        Hedges, "Distribution theory for Glass's estimator of effect size and
        related estimators", 1981.
    """
    samples = []
    for name, values in (("treated", treated), ("baseline", baseline)):
        values = np.asarray(values, float)
        if values.ndim != 1 or not len(values):
            raise ValueError(
                f"`{name}` must be a sequence of at least one number. "
                f"Received: shape={values.shape}"
            )
        samples.append(values)
    treated, baseline = samples
    if min(len(treated), len(baseline)) < 2:
        return math.nan
    freedom = len(treated) + len(baseline) - 2
    squares = sum(((v - v.mean()) ** 2).sum() for v in samples)
    deviation = np.sqrt(squares / freedom)
    # For equal values, the deviation is only a rounding error.
    if deviation <= 1e-12 * max(np.abs(v).max() for v in samples):
        return math.nan
    d = (baseline.mean() - treated.mean()) / deviation
    return float(d * (1 - 3 / (4 * freedom - 1)) if corrected else d)


class PairedTest(NamedTuple):
    """The result of `paired_test`, whose docstring describes the fields."""

    difference: float
    low: float
    high: float
    count: int
    t: float
    t_p_value: float
    exact_p_value: float
    smallest_possible: float


def paired_test(a, b):
    """Tests whether paired values differ, with two two-sided tests.

    Runs with the same seed share their initial weights and order of examples,
    so the differences within seeds are tested. The t-test assumes that they are
    normal, which a few seeds cannot show. The sign-flip test only assumes that
    both signs are equally likely if there is no effect: its p-value is the
    fraction of all 2^n assignments of signs to the differences whose mean is at
    least as far from 0. It cannot be below 2 / 2^n: 0.25 for 3 seeds, 0.0625
    for 5.

    Args:
        a: Values by seed, or a sequence.
        b: Values by seed, or a sequence as long as `a`.

    Returns:
        A named tuple of `difference` (the mean of a - b), `low` and `high` (its
        95% confidence interval by the t distribution), `count` (the number of
        pairs), `t` and `t_p_value`, `exact_p_value` (of the sign-flip test) and
        `smallest_possible` (the smallest p-value that the sign-flip test can
        have with so many pairs). The interval and the t-test are NaN for one
        pair, or if all differences are the same. For more than 14 pairs, the
        sign-flip test uses a seeded sample of sign patterns.

    Example:
        >>> test = paired_test({0: 5.1, 1: 4.9, 2: 5.3}, {0: 2.0, 1: 2.2, 2: 2})
        >>> round(test.difference, 4), round(test.t_p_value, 4)
        (3.0333, 0.0034)
        >>> round(test.low, 2), round(test.high, 2)
        (2.27, 3.79)
        >>> test.exact_p_value, test.smallest_possible
        (0.25, 0.25)
    """
    if isinstance(a, Mapping) != isinstance(b, Mapping):
        raise ValueError(
            "`a` and `b` must both be by seed, or neither. "
            f"Received: a={a!r}, b={b!r}"
        )
    if isinstance(a, Mapping):
        seeds = [seed for seed in a if seed in b]
        a, b = [a[seed] for seed in seeds], [b[seed] for seed in seeds]
    a, b = np.asarray(a, float), np.asarray(b, float)
    if a.ndim != 1 or a.shape != b.shape or not len(a):
        raise ValueError(
            "`a` and `b` must hold at least one pair of values. "
            f"Received: shapes {a.shape} and {b.shape}"
        )
    difference, count = a - b, len(a)
    t = t_p_value = low = high = math.nan
    # For equal differences, the deviation is only a rounding error.
    if count > 1 and np.ptp(difference) > 1e-12 * np.abs(difference).max():
        test = stats.ttest_rel(a, b)
        t, t_p_value = float(test.statistic), float(test.pvalue)
        low, high = map(float, test.confidence_interval(0.95))
    exact_p_value = smallest_possible = 1.0
    if count > 1:
        # SciPy's p-value of a sample is at least 2 / (n_resamples + 1).
        exact = count <= _MAX_EXACT
        exact_p_value = stats.permutation_test(
            (difference,),
            lambda values, axis: values.mean(axis=axis),
            permutation_type="samples",
            vectorized=True,
            n_resamples=np.inf if exact else 2 ** (_MAX_EXACT + 1) - 1,
            random_state=np.random.default_rng(0),
        ).pvalue
        smallest_possible = 2 / 2 ** (count if exact else _MAX_EXACT + 1)
    return PairedTest(
        float(difference.mean()),
        low,
        high,
        count,
        t,
        t_p_value,
        float(exact_p_value),
        smallest_possible,
    )


def holm(p_values):
    """Returns p-values of several tests with Holm's correction.

    If hypotheses are rejected where the corrected p-value is at most a level,
    the probability of rejecting any true null hypothesis is at most this level.

    Args:
        p_values: P-values; NaN for tests that could not be done, which are not
            counted.

    Returns:
        An array of corrected p-values, NaN where `p_values` is NaN.

    Example:
        >>> holm([0.01, 0.04, 0.03]).round(4).tolist()
        [0.03, 0.06, 0.06]
    """
    p_values = np.asarray(p_values, float)
    corrected = np.full(p_values.shape, np.nan)
    order = np.argsort(p_values)[: np.sum(~np.isnan(p_values))]
    factors = np.arange(len(order), 0, -1)
    steps = np.maximum.accumulate(factors * p_values[order])
    corrected[order] = np.minimum(steps, 1)
    return corrected


def better_sign(metric):
    """Returns 1 if higher is better, -1 if lower is better, 0 otherwise.

    Example:
        >>> better_sign("accuracy"), better_sign("ece_ts")
        (1, -1)
        >>> better_sign("temperature_ts")
        0
    """
    if metric == "accuracy":
        return 1
    prefixes = tuple(f"{name}_" for name in _ERRORS)
    return -1 if metric in _ERRORS or metric.startswith(prefixes) else 0


def within_accuracy(
    rows, accuracy="accuracy", tolerance=0.01, *, reference=None
):
    """Returns which rows give up less accuracy than the tolerance.

    The loss must be strictly smaller: with the paper's 1% and a reference of
    95%, an accuracy of 94% is not within the tolerance, and 94.01% is. Rows
    whose accuracy is not a finite number are not within it, and are ignored as
    a reference.

    Args:
        rows: Dictionaries, or other objects with `row[accuracy]`.
        accuracy: The key of the accuracy, between 0 and 1.
        tolerance: The accuracy that may be given up, as a fraction: 0.01 is one
            percentage point.
        reference: The accuracy to compare with; the highest of `rows` if None.

    Returns:
        A list with one bool per row.

    Example:
        >>> rows = [{"accuracy": 0.95}, {"accuracy": 0.94}, {"accuracy": 0.945}]
        >>> within_accuracy(rows)
        [True, False, True]
    """
    checks.number("tolerance", tolerance, low=0.0)
    values = [float(row[accuracy]) for row in rows]
    if reference is None:
        reference = max(filter(math.isfinite, values), default=0.0)
    return [
        math.isfinite(value) and reference - value < tolerance - _ROUNDING
        for value in values
    ]


def best_within_accuracy(
    rows, accuracy="accuracy", error="ece", tolerance=0.01, *, reference=None
):
    """Returns the row with the lowest error that gives up little accuracy.

    This is the rule of the paper: "We choose the lowest ECE whilst giving up
    less than 1% accuracy relative to the configuration with the highest
    accuracy." Among equal errors, the more accurate row is chosen, then the
    earlier one. Rows whose error or accuracy is not a finite number are ignored
    altogether.

    Args:
        rows: See `within_accuracy`.
        accuracy: The key of the accuracy.
        error: The key of the error, such as the ECE.
        tolerance: See `within_accuracy`.
        reference: See `within_accuracy`.

    Returns:
        One of `rows`.

    Example:
        >>> rows = [
        ...     {"beta": 0.1, "accuracy": 0.952, "ece": 0.031},
        ...     {"beta": 1.0, "accuracy": 0.947, "ece": 0.012},
        ...     {"beta": 10.0, "accuracy": 0.921, "ece": 0.008},
        ... ]
        >>> best_within_accuracy(rows)["beta"]
        1.0

    Reference:
        Karandikar et al., "Soft Calibration Objectives for Neural Networks",
        2021, the appendix on hyperparameters.
    """
    finite = [row for row in rows if math.isfinite(row[error])]
    within = within_accuracy(finite, accuracy, tolerance, reference=reference)
    candidates = [row for row, good in zip(finite, within, strict=True) if good]
    if not candidates:
        raise ValueError(
            "`rows` must hold a row with a finite error and an accuracy within "
            f"`tolerance`. Received: {len(rows)} rows, {len(finite)} with a "
            f"finite {error!r}, none within {tolerance} of the best"
        )
    return min(candidates, key=lambda row: (row[error], -row[accuracy]))


def summarize_results(
    rows,
    metrics=("accuracy", "ece", "ece_ts", "ece_ts_sb_ece"),
    max_accuracy_loss=0.01,
):
    """Returns means and standard errors over seeds, as in the paper's tables.

    Args:
        rows: Result rows, one dictionary per run: `setting`, `objective`,
            `primary`, `secondary` ("" for none), `interleaved`, `seed` and the
            metrics; or a pandas frame with these columns.
        metrics: Names of metrics; `accuracy` is always added.
        max_accuracy_loss: An objective must give up less accuracy than this,
            relative to the most accurate primary loss alone, to be marked as
            best: 0.01 as in the paper's table of the best objectives.

    Returns:
        A dictionary for each objective of each setting, in the order of the
        rows: `setting`, `objective`, `primary`, `secondary`, `interleaved`;
        `mean`, `error` (the standard error, NaN for one run), `count` (the
        number of runs) and `best`, each a dictionary from metrics; and
        `within_accuracy`, whether the mean accuracy is less than
        `max_accuracy_loss` below that of the most accurate primary loss alone
        (or of the most accurate objective, if no primary loss was run alone).
        `best` is true for the best mean of the setting among the objectives for
        which `within_accuracy` is true. Metrics that no run of an objective has
        are absent.

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
    metrics = list(dict.fromkeys(("accuracy", *metrics)))
    frame = _frame(rows, metrics)
    summaries = []
    for (setting, objective), runs in frame.groupby(
        ["setting", "objective"], sort=False
    ):
        first = runs.iloc[0]
        counts = runs[metrics].count()
        there = [metric for metric in metrics if counts[metric]]
        summaries.append(
            {
                "setting": setting,
                "objective": objective,
                "primary": first["primary"],
                "secondary": first["secondary"],
                "interleaved": bool(first["interleaved"]),
                "mean": runs[there].mean().to_dict(),
                "error": runs[there].sem().to_dict(),
                "count": counts[there].to_dict(),
                "best": dict.fromkeys(there, False),
            }
        )
    for setting in frame["setting"].unique():
        here = [s for s in summaries if s["setting"] == setting]
        _mark_best(here, metrics, max_accuracy_loss)
    return summaries


def effect_sizes(rows, metric="ece", corrected=False):
    """Returns Cohen's d of every secondary loss against its primary loss alone.

    Interleaved and composite training with a secondary loss are separate
    objectives; both are compared with the primary loss alone.

    Args:
        rows: Result rows, as in `summarize_results`.
        metric: Name of the metric, such as `ece`, or `ece_ts` for the effect
            that remains after temperature scaling.
        corrected: As in `cohens_d`.

    Returns:
        Dictionaries with `setting`, `primary`, `secondary`, `interleaved`,
        `objective`, `metric`, `d` (positive if better; NaN for one seed),
        `count` and `baseline_count` (numbers of seeds). Objectives whose
        primary loss was not run alone are left out.
    """
    sign = _required_sign(metric)
    values, alone = _values(rows, metric)
    effects = []
    for (setting, primary, secondary, interleaved, objective), runs in values:
        baseline = alone.get((setting, primary))
        if not secondary or baseline is None:
            continue
        d = cohens_d(runs.to_numpy(), baseline.to_numpy(), corrected)
        effects.append(
            {
                "setting": setting,
                "primary": primary,
                "secondary": secondary,
                "interleaved": bool(interleaved),
                "objective": objective,
                "metric": metric,
                "d": -sign * d,
                "count": len(runs),
                "baseline_count": len(baseline),
            }
        )
    return effects


def mean_effect_sizes(effects):
    """Returns the mean of d over settings and primary losses.

    The paper's figure 1 compares secondary losses "across datasets and primary
    losses" and does not say how they are combined. This function returns the
    plain mean of d. For the means and standard errors of the paper's own table,
    it gives the order stated in the figure's caption (S-AvUC, then MMCE, then
    SB-ECE); the mean difference over the pooled deviation does not.

    Args:
        effects: Rows from `effect_sizes`, of one or several metrics.

    Returns:
        Dictionaries with `secondary`, `interleaved`, `metric`, `d`, `error`
        (standard error over pairs of setting and primary loss, NaN for one) and
        `count` (the number of pairs with a d).
    """
    keys = ["secondary", "interleaved", "metric"]
    frame = pd.DataFrame(effects, columns=[*keys, "d"]).dropna(subset="d")
    groups = frame.groupby(keys, sort=False)["d"]
    means = groups.agg(d="mean", error="sem", count="count").reset_index()
    return means.to_dict("records")


def significance_rows(rows, metric="ece"):
    """Returns paired tests over seeds between objectives of the same setting.

    Every objective with a secondary loss is compared with its primary loss
    alone, and every objective with the one that has the best mean. Because the
    best objective is chosen by the values that are tested, the p-values of the
    second comparison are somewhat too small. p-values are corrected by `holm`
    over the tests of one kind in one setting.

    Args:
        rows: Result rows, as in `summarize_results`.
        metric: Name of the metric.

    Returns:
        Dictionaries with `setting`, `objective`, `against`, `comparison`
        (`primary` or `best`), `metric`, the fields of `paired_test`
        (`difference` is objective minus `against`), and `t_p_holm` and
        `exact_p_holm`. Objectives with no seed in common are left out.
    """
    sign = _required_sign(metric)
    values, alone = _values(rows, metric)
    families = {}
    for (setting, primary, secondary, _, objective), runs in values:
        best = max(
            (other for key, other in values if key[0] == setting),
            key=lambda other: sign * other.mean(),
        )
        against = {
            "primary": alone.get((setting, primary)) if secondary else None,
            "best": best,
        }
        for comparison, other in against.items():
            if other is None or other.name == objective:
                continue
            if runs.index.intersection(other.index).empty:
                continue
            families.setdefault((setting, comparison), []).append(
                {
                    "setting": setting,
                    "objective": objective,
                    "against": other.name,
                    "comparison": comparison,
                    "metric": metric,
                    **paired_test(dict(runs), dict(other))._asdict(),
                }
            )
    for family in families.values():
        for kind in ("t", "exact"):
            corrected = holm([row[f"{kind}_p_value"] for row in family])
            for row, p_value in zip(family, corrected, strict=True):
                row[f"{kind}_p_holm"] = float(p_value)
    return [row for family in families.values() for row in family]


def _required_sign(metric):
    """Returns `better_sign` of a metric, which must not be 0."""
    sign = better_sign(metric)
    if not sign:
        raise ValueError(
            "`metric` must be one of which more or less is better. "
            f"Received: metric={metric!r}"
        )
    return sign


def _frame(rows, metrics):
    """Returns the rows as a frame, after checking that each run occurs once."""
    frame = pd.DataFrame(rows)
    if frame.empty:
        raise ValueError(f"`rows` must not be empty. Received: rows={rows!r}")
    twice = frame[frame.duplicated(["setting", "objective", "seed"])]
    if len(twice):
        run = twice.iloc[0]
        raise ValueError(
            "`rows` must hold a run once. Received twice: "
            f"setting={run['setting']!r}, objective={run['objective']!r}, "
            f"seed={run['seed']}"
        )
    for metric in metrics:
        if metric not in frame or frame[metric].isna().all():
            near = difflib.get_close_matches(metric, frame.columns, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(
                "`rows` must hold the metric."
                f"{hint} Received: metric={metric!r}"
            )
        frame[metric] = frame[metric].astype(float)
    return frame


def _values(rows, metric):
    """Returns the values of a metric by seed for every objective.

    Returns:
        A list of pairs: `(setting, primary, secondary, interleaved, objective)`
        and a series by seed, named after the objective; and the series of the
        primary losses alone, by `(setting, primary)`.
    """
    frame = _frame(rows, [metric]).dropna(subset=metric).set_index("seed")
    keys = ["setting", "primary", "secondary", "interleaved", "objective"]
    values = [
        (key, runs[metric].rename(key[-1]))
        for key, runs in frame.groupby(keys, sort=False)
    ]
    alone = {
        (setting, primary): runs
        for (setting, primary, secondary, interleaved, _), runs in values
        if not secondary and not interleaved
    }
    return values, alone


def _mark_best(summaries, metrics, max_accuracy_loss):
    """Sets `within_accuracy` and `best` of the objectives of one setting."""
    accuracies = [s["mean"].get("accuracy", math.nan) for s in summaries]
    alone = [
        accuracy
        for accuracy, s in zip(accuracies, summaries, strict=True)
        if not s["secondary"] and not s["interleaved"] and accuracy == accuracy
    ]
    marks = within_accuracy(
        [{"accuracy": accuracy} for accuracy in accuracies],
        tolerance=max_accuracy_loss,
        reference=max(alone, default=None),
    )
    for summary, mark in zip(summaries, marks, strict=True):
        summary["within_accuracy"] = mark
    for metric in filter(better_sign, metrics):
        within = [
            s for s in summaries if s["within_accuracy"] and metric in s["best"]
        ]
        scores = [better_sign(metric) * s["mean"][metric] for s in within]
        for summary, score in zip(within, scores, strict=True):
            summary["best"][metric] = score == max(scores)
