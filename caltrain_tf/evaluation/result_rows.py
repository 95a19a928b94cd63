"""What statistics over runs read from result rows."""

import difflib
import math

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


def required_sign(metric):
    """`better_sign` of a metric of which more or less must be better."""
    sign = better_sign(metric)
    if not sign:
        raise ValueError(
            "`metric` must be one of which more or less is better. "
            f"Received: metric={metric!r}"
        )
    return sign


def values_by_objective(rows, metric):
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


def objective_parts(rows):
    """`primary`, `secondary` and `interleaved`, by `(setting, objective)`."""
    names = ("primary", "secondary", "interleaved")
    return {
        (row["setting"], row["objective"]): {key: row[key] for key in names}
        for row in rows
    }


def primaries_alone(rows):
    """The objectives with no secondary loss, by `(setting, primary)`."""
    return {
        (row["setting"], row["primary"]): row["objective"]
        for row in rows
        if not row["secondary"] and not row["interleaved"]
    }
