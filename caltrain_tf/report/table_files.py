"""The tables of a report as files."""

from collections.abc import Callable
from typing import NamedTuple

from caltrain_tf.report import contents
from caltrain_tf.report.shift_table import shift_table
from caltrain_tf.report.table_formats import to_csv
from caltrain_tf.report.table_formats import to_latex
from caltrain_tf.report.table_formats import to_markdown

ACCURACY_RULE = (
    "Objectives marked † give up 1% accuracy or more against the most accurate "
    "primary loss alone (of all objectives where none was run alone), "
    "and are not marked as best."
)
_SCALING = (
    "TS is temperature scaling fitted to the calibration split by NLL, "
    "TS-SB-ECE the same fitted by the soft-binned ECE."
)
_ESTIMATES = "Means ± standard errors over seeds, of the test split."
_TESTS = (
    "Two-sided paired tests over the seeds that both have, of the difference "
    "in {}: the t-test, and all flips of the differences' signs. Holm's "
    "correction is over the tests of this table. With n common seeds the sign "
    "flips can give no p below 2 / 2^n, the last column, however clear the "
    "difference. "
)


class Kind(NamedTuple):
    """A table that a report may have, of every setting.

    Attributes:
        name: Of its files.
        title: What it shows.
        note: How it was computed.
        build: From the rows of a setting to a `Table`, or None where they do
            not allow it.
        under_shift: Whether these are shift rows, and not result rows.
    """

    name: str
    title: str
    note: str
    build: Callable
    under_shift: bool = False


def _measures(keys):
    return lambda rows: contents.measure_table(rows, keys)


def _memorised(rows):
    if not any("train_ece" in row for row in rows):
        return None
    return contents.measure_table(rows, contents.MEMORISED)


def _dirichlet(rows):
    if not any("ece_dirichlet" in row for row in rows):
        return None
    return contents.measure_table(rows, contents.DIRICHLET)


def _tests(metric, comparison):
    return lambda rows: contents.significance_table(rows, metric, comparison)


_BEST = (
    "The best is chosen by the values that are tested, so that these p look "
    "somewhat clearer than they are."
)
KINDS = (
    Kind(
        "results",
        "Accuracy and calibration error",
        f"{_ESTIMATES} ECE is l2 over 15 bins of equal mass. {_SCALING} "
        f"{ACCURACY_RULE}",
        _measures(contents.MAIN),
    ),
    Kind(
        "measures",
        "Other measures",
        f"{_ESTIMATES} Without scaling. Mean-sweep CE and marginal ECE are l2 "
        f"over bins of equal mass; the KS error is l1. {ACCURACY_RULE}",
        _measures(contents.OTHERS),
    ),
    Kind(
        "memorisation",
        "Is the training set memorised?",
        "Means ± standard errors over seeds. On the left the training set, "
        "over the last epoch and as it was trained; on the right the test "
        "split. "
        "Where nearly all training images are classified correctly, with "
        "little training ECE, a secondary loss finds nothing to mend there. "
        f"{ACCURACY_RULE}",
        _memorised,
    ),
    Kind(
        "dirichlet",
        "Dirichlet calibration",
        f"{_ESTIMATES} Dirichlet calibration with off-diagonal and intercept "
        "regularisation, fitted to the calibration split, its penalties chosen "
        f"there by cross-validation. {ACCURACY_RULE}",
        _dirichlet,
    ),
    Kind(
        "significance",
        "Significance of a secondary loss",
        _TESTS.format("ECE"),
        _tests("ece", "primary"),
    ),
    Kind(
        "significance_ts",
        "Significance of a secondary loss after temperature scaling",
        _TESTS.format("ECE+TS"),
        _tests("ece_ts", "primary"),
    ),
    Kind(
        "significance_best",
        "Significance against the lowest ECE",
        _TESTS.format("ECE") + _BEST,
        _tests("ece", "best"),
    ),
    Kind(
        "shift",
        "ECE under shift",
        "At each severity the mean over the corruptions that every run was "
        "measured on, means ± standard errors over seeds of it. ECE is l2 over "
        f"15 bins of equal mass. {_SCALING} The calibration split is clean.",
        shift_table,
        under_shift=True,
    ),
    Kind(
        "hyperparameters",
        "What every objective was trained with",
        "Settings of the losses, the weight of the secondary one (beta) and "
        "that of the l2 penalty.",
        contents.hyperparameter_table,
    ),
)
TABLE_FILES = tuple(
    f"{kind.name}{ending}"
    for kind in KINDS
    for ending in (".csv", ".md", ".tex")
)


def build_tables(rows):
    """Returns every table of a report.

    Args:
        rows: A `Rows`.

    Returns:
        From the names of kinds to dictionaries from settings to `Table`s;
        what cannot be made of the rows is absent.
    """
    tables = {}
    for kind in KINDS:
        part = rows.shift if kind.under_shift else rows.results
        for setting in dict.fromkeys(row["setting"] for row in rows.results):
            here = [row for row in part if row["setting"] == setting]
            table = kind.build(here)
            if table is not None:
                tables.setdefault(kind.name, {})[setting] = table
    return tables


def table_texts(tables):
    """Returns the tables as texts of CSV, Markdown and LaTeX files, by name.

    Args:
        tables: Of `build_tables`.
    """
    texts = {}
    for kind in KINDS:
        if kind.name in tables:
            made = tables[kind.name]
            texts[f"{kind.name}.csv"] = to_csv(made)
            texts[f"{kind.name}.md"] = to_markdown(made, kind.title, kind.note)
            texts[f"{kind.name}.tex"] = to_latex(made, kind.title, kind.note)
    return texts
