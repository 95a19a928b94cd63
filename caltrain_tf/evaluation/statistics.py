"""Comparing objectives over runs: means, effect sizes and paired tests.

Rows are dictionaries, one per run, or a pandas frame of them: `setting` (what
runs share), `objective`, `primary`, `secondary` ("" for none), `interleaved`,
`seed` and any number of metrics.
"""

import difflib
import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from caltrain_tf.checks import check_number

# Metrics of which less is better, followed by a calibrator's name or nothing:
# `ece`, `ece_ts`.
_ERRORS = (
    "ece",
    "nll",
    "brier",
    "ks_error",
    "mean_sweep_ce",
    "marginal_ece",
    "smooth_ece",
)
# Accuracies of a split differ by at least 1e-6; the rounding error of
# 0.91 - 0.9 is far below.
_ROUNDING = 1e-9
# Up to this many pairs the sign-flip test takes all 2^n sign patterns.
_MAX_EXACT = 14


def standard_error(values):
    """Standard error of the mean of a sample; NaN for fewer than two."""
    return float(stats.sem(values)) if len(values) > 1 else math.nan


def masson_loftus_error(values):
    """Standard error of condition means, without what subjects differ by.

    The variance is that of the interaction between subjects (here corruption
    types) and conditions (here calibrators), pooled over conditions: how hard
    a corruption is in itself does not count. All conditions share one error.

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
    """Cohen's d, positive where the treated values are lower.

    d = (mean of baseline - mean of treated) / s, where s^2 is the variance of
    the two samples pooled, (n_1 - 1) s_1^2 + (n_2 - 1) s_2^2 over
    n_1 + n_2 - 2. For an error such as ECE, lower is better.

    Args:
        treated: Values over seeds, such as the ECE of runs with a secondary
            loss.
        baseline: Values over seeds, such as those of the primary loss alone.
        corrected: Whether to take out the bias of small samples (Hedges' g):
            d is multiplied by 1 - 3 / (4 (n_1 + n_2 - 2) - 1), which is 0.8
            for three seeds of each.

    Returns:
        A float; NaN where either sample has fewer than two values, or neither
        varies.

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
    # The deviation of equal values is a rounding error.
    if deviation <= 1e-12 * max(np.abs(v).max() for v in samples):
        return math.nan
    d = (baseline.mean() - treated.mean()) / deviation
    return float(d * (1 - 3 / (4 * freedom - 1)) if corrected else d)


class PairedTest(NamedTuple):
    """The result of `paired_test`, which describes the fields."""

    difference: float
    low: float
    high: float
    count: int
    t: float
    t_p_value: float
    exact_p_value: float
    smallest_possible: float


def paired_test(a, b):
    """Two-sided tests of whether paired values differ.

    Runs of one seed share their initial weights and order of examples, so the
    differences within seeds are tested. The t-test assumes that they are
    normal, which a few seeds cannot show. The sign-flip test assumes only that
    without an effect either sign is as likely: its p-value is the share of all
    2^n ways of giving signs to the differences whose mean is as far from 0. It
    cannot go below 2 / 2^n: 0.25 for 3 seeds, 0.0625 for 5.

    Args:
        a: Values by seed, or a sequence.
        b: Values by seed, or a sequence as long as `a`.

    Returns:
        A named tuple of `difference` (the mean of a - b), `low` and `high` (its
        95% interval by the t distribution), `count` (of pairs), `t` and
        `t_p_value`, `exact_p_value` and `smallest_possible` (the p-value of the
        clearest effect that so many pairs can show). Interval and t-test are
        NaN for one pair, or where all differences are the same. Over 14 pairs,
        the sign-flip test takes a seeded sample of sign patterns.

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
    # The deviation of equal differences is a rounding error.
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
    """Holm's correction of the p-values of several tests.

    The chance that any true null hypothesis is rejected stays below the level
    at which the corrected values are read.

    Args:
        p_values: NaN for a test that could not be made; it does not count.

    Returns:
        An array of corrected p-values, NaN where there were NaN.

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
    """1 where more is better, -1 where less is, 0 for what is neither.

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
    """Says which rows give up less accuracy than is tolerated.

    Strictly less: with the paper's 1%, a row of 94% is not within a best of
    95%, and one of 94.01% is. A row whose accuracy is not a finite number is
    not, and counts for nothing.

    Args:
        rows: Dictionaries, or others with `row[accuracy]`.
        accuracy: The key of the accuracy, between 0 and 1.
        tolerance: What may be given up, a share: 0.01 is one percentage point.
        reference: The accuracy against which it is given up; the highest of
            `rows` if None.

    Returns:
        A list of a bool for each row.

    Example:
        >>> rows = [{"accuracy": 0.95}, {"accuracy": 0.94}, {"accuracy": 0.945}]
        >>> within_accuracy(rows)
        [True, False, True]
    """
    check_number("tolerance", tolerance, low=0.0)
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
    """Returns the row of the lowest error that gives up little accuracy.

    "We choose the lowest ECE whilst giving up less than 1% accuracy relative to
    the configuration with the highest accuracy." Of equal errors, the more
    accurate row is the better one, then the earlier. Rows whose error or
    accuracy is not a finite number are left out altogether.

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
    """Means and standard errors over seeds, as the paper's tables have them.

    Args:
        rows: Result rows, one dictionary per run: `setting`, `objective`,
            `primary`, `secondary` ("" for none), `interleaved`, `seed` and the
            metrics; or a pandas frame with these columns.
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
    """Cohen's d of every secondary loss against the same primary loss alone.

    Interleaved training of a loss is apart from composite training with it;
    both are compared with the primary loss alone.

    Args:
        rows: Result rows, as of `summarize_results`.
        metric: Which metric, such as `ece`, or `ece_ts` for the effect that is
            left after temperature scaling.
        corrected: As of `cohens_d`.

    Returns:
        Dictionaries with `setting`, `primary`, `secondary`, `interleaved`,
        `objective`, `metric`, `d` (positive: better; NaN for one seed), `count`
        and `baseline_count` (seeds). Where the primary loss alone was not run,
        there is none.
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
    """The mean of d over settings and primary losses.

    The paper's figure 1 compares secondary losses "across datasets and primary
    losses" and does not say how they are put together. This is the plain mean
    of d. On the means and standard errors of the paper's own table it gives
    the order that the figure's caption states (S-AvUC, then MMCE, then SB-ECE);
    the mean difference over the pooled deviation does not.

    Args:
        effects: Rows of `effect_sizes`, of one metric or of several.

    Returns:
        Dictionaries with `secondary`, `interleaved`, `metric`, `d`, `error`
        (standard error over the settings and primary losses, NaN for one) and
        `count` (how many of them have a d).
    """
    keys = ["secondary", "interleaved", "metric"]
    frame = pd.DataFrame(effects, columns=[*keys, "d"]).dropna(subset="d")
    groups = frame.groupby(keys, sort=False)["d"]
    means = groups.agg(d="mean", error="sem", count="count").reset_index()
    return means.to_dict("records")


def significance_rows(rows, metric="ece"):
    """Paired tests over seeds between objectives of the same setting.

    Every objective with a secondary loss against the same primary loss alone,
    and every objective against the one with the best mean. That one is chosen
    by the same values that are tested, which makes the second kind look
    somewhat clearer than it is. p-values are corrected by `holm` over the
    tests of one kind in one setting.

    Args:
        rows: Result rows, as of `summarize_results`.
        metric: Which metric.

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
    """`better_sign` of a metric of which more or less must be better."""
    sign = better_sign(metric)
    if not sign:
        raise ValueError(
            "`metric` must be one of which more or less is better. "
            f"Received: metric={metric!r}"
        )
    return sign


def _frame(rows, metrics):
    """The rows as a frame, after checking that each run is there once."""
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
    """The values of a metric by seed, of every objective.

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
