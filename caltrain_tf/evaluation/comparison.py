"""Comparing objectives over the result rows of many runs."""

import collections
import difflib
import math

import numpy as np

from caltrain_tf.checks import check_number
from caltrain_tf.evaluation.statistics import cohens_d
from caltrain_tf.evaluation.statistics import holm
from caltrain_tf.evaluation.statistics import paired_test
from caltrain_tf.evaluation.statistics import standard_error

# After these come a calibrator's name, or nothing: `ece`, `ece_ts`.
_ERRORS = (
    "ece",
    "nll",
    "brier",
    "ks_error",
    "mean_sweep_ce",
    "marginal_ece",
    "smooth_ece",
)
# Accuracies are shares of a split, at least 1e-6 apart in any that we know;
# what 0.91 - 0.9 is off by is far below.
_ROUNDING = 1e-9


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
        for key, part in _objective_parts(rows).items()
    }
    metrics = list(dict.fromkeys(("accuracy", *metrics)))
    for metric in metrics:
        for key, seeds in _values_by_objective(rows, metric).items():
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
    values = _values_by_objective(rows, metric)
    sign = _required_sign(metric)
    parts, baselines = _objective_parts(rows), _primaries_alone(rows)
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
    values = _values_by_objective(rows, metric)
    sign = _required_sign(metric)
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
    is_error = metric in _ERRORS or metric.startswith(
        tuple(f"{name}_" for name in _ERRORS)
    )
    return -1 if is_error else 0


def _required_sign(metric):
    """`better_sign` of a metric of which more or less must be better."""
    sign = better_sign(metric)
    if not sign:
        raise ValueError(
            "`metric` must be one of which more or less is better. "
            f"Received: metric={metric!r}"
        )
    return sign


def _values_by_objective(rows, metric):
    """The values of a metric, by what was run and by seed.

    Args:
        rows: Result rows, a dictionary a run: `setting`, `objective`,
            `primary`, `secondary`, `interleaved`, `seed` and the metrics. A
            row in which the metric is missing, None or NaN does not count.
        metric: Which metric.

    Returns:
        From `(setting, objective)` to a dictionary from seeds to values, both
        in the order of the rows.

    Raises:
        ValueError: No row has the metric, or two are of the same run.
    """
    if not rows:
        raise ValueError(f"`rows` must not be empty. Received: rows={rows!r}")
    values = {}
    for row in rows:
        value = row.get(metric)
        if value is None or math.isnan(value):
            continue
        seeds = values.setdefault((row["setting"], row["objective"]), {})
        if row["seed"] in seeds:
            raise ValueError(
                "`rows` must hold a run once. Received twice: "
                f"setting={row['setting']!r}, objective={row['objective']!r}, "
                f"seed={row['seed']!r}"
            )
        seeds[row["seed"]] = float(value)
    if not values:
        names = dict.fromkeys(key for row in rows for key in row)
        near = difflib.get_close_matches(metric, names, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"`rows` must hold the metric.{hint} Received: metric={metric!r}"
        )
    return values


def _objective_parts(rows):
    """`primary`, `secondary` and `interleaved`, by `(setting, objective)`."""
    names = ("primary", "secondary", "interleaved")
    return {
        (row["setting"], row["objective"]): {key: row[key] for key in names}
        for row in rows
    }


def _primaries_alone(rows):
    """The objectives with no secondary loss, by `(setting, primary)`."""
    return {
        (row["setting"], row["primary"]): row["objective"]
        for row in rows
        if not row["secondary"] and not row["interleaved"]
    }


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


def _pairs(rows, values, sign):
    parts, baselines = _objective_parts(rows), _primaries_alone(rows)
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
