"""The tables of a report, of the result rows of one setting."""

import collections

from caltrain_tf import evaluation
from caltrain_tf.report.tables import Column
from caltrain_tf.report.tables import Estimate
from caltrain_tf.report.tables import Table

_OBJECTIVE = Column("objective", "Objective", objective=True)
_SEEDS = Column("seeds", "Seeds")
_COLUMNS = {
    column.key: column
    for column in (
        Column("accuracy", "Accuracy (%)", percent=True),
        Column("ece", "ECE (%)", percent=True),
        Column("ece_ts", "ECE+TS (%)", percent=True),
        Column("ece_ts_sb_ece", "ECE+TS-SB-ECE (%)", percent=True),
        Column("train_accuracy", "Training accuracy (%)", percent=True),
        Column("train_ece", "Training ECE (%)", percent=True),
        Column("ks_error", "KS error (%)", percent=True),
        Column("mean_sweep_ce", "Mean-sweep CE (%)", percent=True),
        Column("marginal_ece", "Marginal ECE (%)", percent=True),
        Column("brier", "Brier score", digits=4),
        Column("nll", "NLL (nats)", digits=4),
        Column("average_uncertainty", "Mean entropy (nats)", digits=4),
        Column("ece_dirichlet", "ECE+Dirichlet (%)", percent=True),
        Column(
            "accuracy_dirichlet", "Accuracy with Dirichlet (%)", percent=True
        ),
        Column("nll_dirichlet", "NLL with Dirichlet (nats)", digits=4),
    )
}
_SIGNIFICANCE = (
    _OBJECTIVE,
    Column("against", "Against", objective=True),
    _SEEDS,
    Column("difference", "Difference (points)", percent=True),
    Column("t_p_value", "p, t-test", digits=4),
    Column("t_p_holm", "p, t-test, Holm", digits=4),
    Column("exact_p_value", "p, sign flips", digits=4),
    Column("exact_p_holm", "p, sign flips, Holm", digits=4),
    Column("smallest_possible", "Smallest p of sign flips", digits=4),
)
MAIN = ("accuracy", "ece", "ece_ts", "ece_ts_sb_ece")
OTHERS = (
    *("ks_error", "mean_sweep_ce", "marginal_ece", "brier", "nll"),
    "average_uncertainty",
)
MEMORISED = ("train_accuracy", "train_ece", "accuracy", "ece")
DIRICHLET = (
    *("accuracy", "accuracy_dirichlet", "ece", "ece_dirichlet"),
    *("nll", "nll_dirichlet"),
)


def measure_table(rows, measures):
    """Means ± standard errors of measures, the best marked.

    Args:
        rows: Result rows of one setting.
        measures: Their names; those that no run has are left out.

    Returns:
        A `Table`, or None where no run has any. Rows of objectives outside the
        accuracy rule of `summarize_results` are aside.
    """
    measures = [key for key in measures if any(key in row for row in rows)]
    if not measures:
        return None
    summaries = evaluation.summarize_results(rows, measures)
    table_rows = []
    for summary in summaries:
        # Of the measure that the fewest runs have.
        counts = [summary["count"][k] for k in measures if k in summary["mean"]]
        estimates = {
            key: Estimate(summary["mean"][key], summary["error"][key])
            for key in measures
            if key in summary["mean"]
        }
        table_rows.append(
            {
                "objective": summary["objective"],
                "seeds": min(counts, default=0),
                **estimates,
            }
        )
    return Table(
        (_OBJECTIVE, _SEEDS, *(_COLUMNS[key] for key in measures)),
        table_rows,
        frozenset(
            (index, key)
            for index, summary in enumerate(summaries)
            for key in measures
            if summary["best"].get(key)
        ),
        frozenset(
            index
            for index, summary in enumerate(summaries)
            if not summary["within_accuracy"]
        ),
    )


def significance_table(rows, metric, comparison):
    """Paired tests over seeds.

    Args:
        rows: Result rows of one setting.
        metric: Which metric.
        comparison: `"primary"`, against the primary loss alone, or `"best"`,
            against the objective with the best mean.

    Returns:
        A `Table`, or None where there is no pair of two seeds or more.
    """
    if not any(metric in row for row in rows):
        return None
    tests = [
        {**test, "seeds": test["count"]}
        for test in evaluation.significance_rows(rows, metric)
        if test["comparison"] == comparison and test["count"] > 1
    ]
    return Table(_SIGNIFICANCE, tests) if tests else None


def hyperparameter_table(rows):
    """What every objective was trained with.

    Args:
        rows: Result rows of one setting.

    Returns:
        A `Table` with a line for each objective and its hyperparameters; more
        than one where its seeds differ.
    """
    seeds = collections.defaultdict(list)
    for row in rows:
        key = row["objective"], row.get("hyperparameters", "")
        seeds[key].append(row["seed"])
    return Table(
        (
            _OBJECTIVE,
            _SEEDS,
            Column("hyperparameters", "Hyperparameters"),
        ),
        [
            {
                "objective": objective,
                "seeds": ", ".join(map(str, numbers)),
                "hyperparameters": text,
            }
            for (objective, text), numbers in seeds.items()
        ],
    )
