"""Statistics of small samples: errors of means, effect sizes and tests."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy import special

# The largest number of pairs of which all sign flips are taken.
MAX_EXACT = 14


def standard_error(values):
    """Standard error of the mean of a sample; NaN for fewer than two."""
    values = np.asarray(values, float)
    if len(values) < 2:
        return float("nan")
    return float(values.std(ddof=1) / np.sqrt(len(values)))


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
    treated = _sample("treated", treated)
    baseline = _sample("baseline", baseline)
    if min(len(treated), len(baseline)) < 2:
        return float("nan")
    freedom = len(treated) + len(baseline) - 2
    squares = sum(((v - v.mean()) ** 2).sum() for v in (treated, baseline))
    deviation = np.sqrt(squares / freedom)
    # Equal values have a deviation of a rounding error.
    scale = max(np.abs(treated).max(), np.abs(baseline).max())
    if deviation <= 1e-12 * scale:
        return float("nan")
    d = (baseline.mean() - treated.mean()) / deviation
    return float(d * (1 - 3 / (4 * freedom - 1)) if corrected else d)


class PairedTest(NamedTuple):
    """Of `paired_test`, which says what the fields are."""

    difference: float
    count: int
    t: float
    t_p_value: float
    exact_p_value: float
    smallest_possible: float


def paired_test(a, b):
    """Two-sided tests of whether paired values differ.

    Runs of one seed share their initial weights and order of examples, so the
    differences within seeds are tested. The t-test takes them as normal, which
    a few seeds cannot show. The sign-flip test takes nothing but that under
    no effect either sign is as likely: its p-value is the share of all 2^n
    ways of giving signs to the differences whose mean is as far from 0. It
    cannot go below 2 / 2^n: 0.25 for 3 seeds, 0.0625 for 5.

    Args:
        a: Values by seed, or a sequence.
        b: Values by seed, or a sequence as long as `a`.

    Returns:
        A named tuple of `difference` (the mean of a - b), `count` (of pairs),
        `t` and `t_p_value` (NaN for one pair, or differences that are all the
        same), `exact_p_value` and `smallest_possible` (what that would
        be if the effect were as clear as can be). Over 14 pairs the exact test
        takes 16,384 seeded random ways of giving signs.

    Example:
        >>> test = paired_test({0: 5.1, 1: 4.9, 2: 5.3}, {0: 2.0, 1: 2.2, 2: 2})
        >>> round(test.difference, 4), round(test.t_p_value, 4)
        (3.0333, 0.0034)
        >>> test.exact_p_value, test.smallest_possible
        (0.25, 0.25)
    """
    difference = _differences(a, b)
    count = len(difference)
    t = t_p_value = float("nan")
    if count > 1:
        deviation = difference.std(ddof=1)
        # Equal differences have a deviation of a rounding error.
        if deviation > 1e-12 * np.abs(difference).max():
            t = float(difference.mean() / deviation * np.sqrt(count))
            t_p_value = float(2 * special.stdtr(count - 1, -abs(t)))
    exact_p_value, smallest_possible = _sign_flips(difference)
    return PairedTest(
        float(difference.mean()),
        count,
        t,
        t_p_value,
        exact_p_value,
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


def _sample(name, values):
    values = np.asarray(values, float)
    if values.ndim != 1 or not len(values):
        raise ValueError(
            f"`{name}` must be a sequence of at least one number. "
            f"Received: shape={values.shape}"
        )
    return values


def _differences(a, b):
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
    return a - b


def _sign_flips(difference):
    count = len(difference)
    # Turning all signs changes no distance from 0: the first stays.
    if count <= MAX_EXACT:
        codes = np.arange(2 ** (count - 1))[:, None]
        minus = codes >> np.arange(count - 1) & 1
    else:
        rng = np.random.default_rng(0)
        minus = rng.integers(0, 2, (2**MAX_EXACT, count - 1))
        # What was seen is one of the ways, so that no p-value is 0.
        minus[0] = 0
    sums = difference[0] + (1 - 2 * minus) @ difference[1:]
    # As far from 0 up to rounding.
    bound = abs(difference.sum()) - 1e-12 * np.abs(difference).sum()
    return float((np.abs(sums) >= bound).mean()), 1 / len(minus)
