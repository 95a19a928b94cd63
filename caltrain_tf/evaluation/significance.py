"""Which secondary losses differ from their primary loss, and from the best."""

import collections

import numpy as np

from caltrain_tf.evaluation.paired_test import paired_test
from caltrain_tf.evaluation.result_rows import objective_parts
from caltrain_tf.evaluation.result_rows import primaries_alone
from caltrain_tf.evaluation.result_rows import required_sign
from caltrain_tf.evaluation.result_rows import values_by_objective


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


def significance_rows(rows, metric="ece"):
    """Paired tests over seeds between objectives of the same setting.

    Every objective with a secondary loss against the same primary loss alone,
    and every objective against the one with the best mean. That one is chosen
    by the same values that are tested, which makes the second kind look
    somewhat clearer than it is. p-values are corrected by `holm` over the
    tests of one kind in one setting.

    Args:
        rows: Result rows, as of `effect_sizes`.
        metric: Which metric.

    Returns:
        Dictionaries with `setting`, `objective`, `against`, `comparison`
        (`primary` or `best`), `metric`, the fields of `paired_test`
        (`difference` is objective minus `against`), and `t_p_holm` and
        `exact_p_holm`. Objectives with no seed in common are left out.
    """
    values = values_by_objective(rows, metric)
    sign = required_sign(metric)
    families = collections.defaultdict(list)
    for setting, objective, against, comparison in _pairs(rows, values, sign):
        a, b = values[setting, objective], values[setting, against]
        if a.keys().isdisjoint(b):
            continue
        families[setting, comparison].append(
            {
                "setting": setting,
                "objective": objective,
                "against": against,
                "comparison": comparison,
                "metric": metric,
                **paired_test(a, b)._asdict(),
            }
        )
    for family in families.values():
        for kind in ("t", "exact"):
            corrected = holm([row[f"{kind}_p_value"] for row in family])
            for row, p_value in zip(family, corrected, strict=True):
                row[f"{kind}_p_holm"] = float(p_value)
    return [row for family in families.values() for row in family]


def _pairs(rows, values, sign):
    parts, baselines = objective_parts(rows), primaries_alone(rows)
    best = {}
    for (setting, objective), seeds in values.items():
        score = sign * np.mean(list(seeds.values()))
        if setting not in best or score > best[setting][0]:
            best[setting] = score, objective
    for setting, objective in values:
        part = parts[setting, objective]
        alone = baselines.get((setting, part["primary"]))
        if part["secondary"] and (setting, alone) in values:
            yield setting, objective, alone, "primary"
        if objective != best[setting][1]:
            yield setting, objective, best[setting][1], "best"
