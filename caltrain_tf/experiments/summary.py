"""What came of a study, as tables for the terminal."""

import numpy as np

from caltrain_tf import evaluation

_COLUMNS = {
    "accuracy": "accuracy",
    "ece": "ECE",
    "ece_ts": "ECE+TS",
    "ece_ts_sb_ece": "ECE+TS-SB-ECE",
}


def summary_table(rows):
    """Returns means ± standard errors over the runs of each objective.

    Args:
        rows: Dictionaries, one a run, of `objective` and what `results.json`
            holds.

    Example:
        >>> ece = {"ece": 0.02, "ece_ts": 0.01, "ece_ts_sb_ece": 0.01}
        >>> print(
        ...     summary_table(
        ...         [
        ...             {"objective": "nll", "accuracy": 0.7, **ece},
        ...             {"objective": "nll", "accuracy": 0.72, **ece},
        ...         ]
        ...     )
        ... )
        percent  runs      accuracy           ECE        ECE+TS ECE+TS-SB-ECE
        nll         2  71.00 ± 1.00   2.00 ± 0.00   1.00 ± 0.00   1.00 ± 0.00
    """
    objectives = list(dict.fromkeys(row["objective"] for row in rows))
    width = max(map(len, [*objectives, "percent"]))
    lines = [
        f"{'percent':<{width}}  runs"
        + "".join(f"{title:>14}" for title in _COLUMNS.values())
    ]
    for objective in objectives:
        runs = [row for row in rows if row["objective"] == objective]
        cells = [_cell([run[key] for run in runs]) for key in _COLUMNS]
        lines.append(
            f"{objective:<{width}}  {len(runs):>4}"
            + "".join(f"{cell:>14}" for cell in cells)
        )
    return "\n".join(lines)


def failures_table(failures):
    """Returns a table of the runs that failed, with their last words.

    Args:
        failures: Of `study_outcome.Failure`.
    """
    return "\n".join(
        f"{failure.name}: {failure.reason}\n"
        f"    {failure.last_line}\n"
        f"    {failure.log_path}"
        for failure in failures
    )


def _cell(values):
    text = f"{100 * np.mean(values):.2f}"
    if len(values) > 1:
        text += f" ± {100 * evaluation.standard_error(values):.2f}"
    return text
