"""How much a secondary loss changes a metric, in standard deviations."""

import collections

import numpy as np

from caltrain_tf.evaluation.result_rows import objective_parts
from caltrain_tf.evaluation.result_rows import primaries_alone
from caltrain_tf.evaluation.result_rows import required_sign
from caltrain_tf.evaluation.result_rows import values_by_objective
from caltrain_tf.evaluation.statistics import standard_error


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


def effect_sizes(rows, metric="ece", corrected=False):
    """Cohen's d of every secondary loss against the same primary loss alone.

    Interleaved training of a loss is apart from composite training with it;
    both are compared with the primary loss alone.

    Args:
        rows: Result rows, a dictionary a run: `setting`, `objective`,
            `primary`, `secondary` ("" for none), `interleaved`, `seed` and the
            metrics.
        metric: Which metric, such as `ece`, or `ece_ts` for the effect that is
            left after temperature scaling.
        corrected: As of `cohens_d`.

    Returns:
        Dictionaries with `setting`, `primary`, `secondary`, `interleaved`,
        `objective`, `metric`, `d` (positive: better; NaN for one seed), `count`
        and `baseline_count` (seeds). Where the primary loss alone was not run,
        there is none.
    """
    values = values_by_objective(rows, metric)
    sign = required_sign(metric)
    parts, baselines = objective_parts(rows), primaries_alone(rows)
    effects = []
    for (setting, objective), seeds in values.items():
        part = parts[setting, objective]
        baseline = baselines.get((setting, part["primary"]))
        baseline_seeds = values.get((setting, baseline))
        if not part["secondary"] or baseline_seeds is None:
            continue
        d = cohens_d(
            list(seeds.values()), list(baseline_seeds.values()), corrected
        )
        effects.append(
            {
                "setting": setting,
                **part,
                "objective": objective,
                "metric": metric,
                "d": -sign * d,
                "count": len(seeds),
                "baseline_count": len(baseline_seeds),
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
        effects: Of `effect_sizes`, of one metric or of several.

    Returns:
        Dictionaries with `secondary`, `interleaved`, `metric`, `d`, `error`
        (standard error over the settings and primary losses, NaN for one) and
        `count` (how many of them have a d).
    """
    values = collections.defaultdict(list)
    for row in effects:
        if not np.isnan(row["d"]):
            key = row["secondary"], row["interleaved"], row["metric"]
            values[key].append(row["d"])
    return [
        {
            "secondary": secondary,
            "interleaved": interleaved,
            "metric": metric,
            "d": float(np.mean(ds)),
            "error": standard_error(ds),
            "count": len(ds),
        }
        for (secondary, interleaved, metric), ds in values.items()
    ]


def _sample(name, values):
    values = np.asarray(values, float)
    if values.ndim != 1 or not len(values):
        raise ValueError(
            f"`{name}` must be a sequence of at least one number. "
            f"Received: shape={values.shape}"
        )
    return values
