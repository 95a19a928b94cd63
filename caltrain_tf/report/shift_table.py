"""Calibration errors under shift as a table."""

from caltrain_tf import evaluation
from caltrain_tf import figures
from caltrain_tf.report.tables import Column
from caltrain_tf.report.tables import Estimate
from caltrain_tf.report.tables import Table

_CALIBRATORS = ("none", "ts", "ts_sb_ece")


def common_shift(rows):
    """Shift rows of the sets that all runs have, by run.

    Args:
        rows: Shift rows of one setting.

    Returns:
        Pairs of an objective's name and the rows of a run of it.
    """
    runs = {}
    for row in rows:
        run = runs.setdefault((row["objective"], row["seed"]), {})
        run.setdefault((row["corruption"], row["severity"]), []).append(row)
    common = set.intersection(*(set(sets) for sets in runs.values()))
    return [
        (
            objective,
            [
                row
                for key, part in sets.items()
                if key in common
                for row in part
            ],
        )
        for (objective, _), sets in runs.items()
    ]


def shift_table(rows):
    """ECE by objective, scaling and severity.

    Args:
        rows: Shift rows of one setting.

    Returns:
        A `Table`, or None where there is no corrupted set that all runs have.
    """
    lines, severities = [], {}
    for calibrator in _CALIBRATORS:
        here = [
            row
            for row in rows
            if (row["calibrator"], row["metric"]) == (calibrator, "ece")
        ]
        runs = common_shift(here) if here else []
        if not runs or not any(row["severity"] for row in runs[0][1]):
            continue
        means = evaluation.compare_runs(runs, "ece", calibrator)
        severities |= dict.fromkeys(row["severity"] for row in means)
        for objective in dict.fromkeys(objective for objective, _ in runs):
            own = [row for row in means if row["objective"] == objective]
            lines.append(
                {
                    "objective": objective,
                    "seeds": own[0]["count"],
                    "scaling": figures.calibrator_label(calibrator),
                    **{
                        f"severity_{row['severity']}": Estimate(
                            row["mean"], row["error"]
                        )
                        for row in own
                    },
                }
            )
    if not lines:
        return None
    columns = (
        Column("objective", "Objective", objective=True),
        Column("seeds", "Seeds"),
        Column("scaling", "Scaling"),
        *(
            Column(
                f"severity_{severity}",
                f"Severity {severity} (%)" if severity else "Clean (%)",
                percent=True,
            )
            for severity in sorted(severities)
        ),
    )
    return Table(columns, lines)
