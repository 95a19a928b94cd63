import math

import pytest

from caltrain_tf.report import contents
from caltrain_tf.report import table_files
from caltrain_tf.report.rows import Rows
from caltrain_tf.report.table_files import table_texts


def build_tables(results):
    return table_files.build_tables(Rows(results, [], [], []))


def row(objective, seed, accuracy, ece, **more):
    primary, _, secondary = objective.partition("+")
    return {
        "setting": "s",
        "objective": objective,
        "primary": primary,
        "secondary": secondary,
        "interleaved": False,
        "seed": seed,
        "hyperparameters": f"beta {seed // 2}",
        "accuracy": accuracy,
        "ece": ece,
        **more,
    }


ROWS = [
    row("nll", 0, 0.90, 0.05, brier=0.2),
    row("nll", 1, 0.92, 0.07, brier=0.4),
    row("nll+mmce", 0, 0.91, 0.03),
    row("nll+mmce", 1, 0.90, 0.02, ece_ts=0.01),
    row("nll+mmce", 2, 0.905, 0.04),
    row("focal", 0, 0.85, 0.01),
]


def test_means_and_errors_are_those_of_hand():
    table = contents.measure_table(ROWS, contents.MAIN)
    keys = [column.key for column in table.columns]
    assert keys == ["objective", "seeds", "accuracy", "ece", "ece_ts"]
    nll, mmce, focal = table.rows
    assert nll["seeds"] == 2 and focal["seeds"] == 1
    # Of three runs, one has the ECE after scaling.
    assert mmce["seeds"] == 1
    assert nll["accuracy"].mean == pytest.approx(0.91)
    # 0.02 / sqrt(2) is the deviation, and that over sqrt(2) the error.
    assert nll["ece"] == pytest.approx((0.06, 0.01))
    assert mmce["ece"] == pytest.approx((0.03, 0.01 / math.sqrt(3)))
    assert math.isnan(focal["ece"].error)
    assert "ece_ts" not in nll


def test_measures_that_no_run_has_make_no_table():
    assert contents.measure_table(ROWS, ["ks_error"]) is None
    table = contents.measure_table(ROWS, contents.OTHERS)
    assert [column.key for column in table.columns[2:]] == ["brier"]


def test_the_best_is_within_one_percent_of_the_accuracy():
    table = contents.measure_table(ROWS, contents.MAIN)
    # Focal has the lowest ECE and gives up 6%.
    assert (1, "ece") in table.best and (2, "ece") not in table.best
    assert table.aside == {2}
    assert (0, "accuracy") in table.best


def test_paired_tests_need_two_seeds():
    table = contents.significance_table(ROWS, "ece", "primary")
    (test,) = table.rows
    assert (test["objective"], test["against"]) == ("nll+mmce", "nll")
    assert test["seeds"] == 2
    # (0.03 - 0.05 + 0.02 - 0.07) / 2
    assert test["difference"] == pytest.approx(-0.035)
    assert test["smallest_possible"] == 0.5
    assert contents.significance_table(ROWS[:1], "ece", "primary") is None
    assert contents.significance_table(ROWS, "ece_ts_sb_ece", "best") is None


def test_hyperparameters_that_differ_between_seeds_are_seen():
    table = contents.hyperparameter_table(ROWS)
    assert [
        (line["objective"], line["seeds"], line["hyperparameters"])
        for line in table.rows
    ] == [
        ("nll", "0, 1", "beta 0"),
        ("nll+mmce", "0, 1", "beta 0"),
        ("nll+mmce", "2", "beta 1"),
        ("focal", "0", "beta 0"),
    ]


def test_tables_of_what_is_there_and_no_others():
    tables = build_tables(ROWS)
    assert "dirichlet" not in tables and "significance_ts" not in tables
    names = {name.rpartition(".")[0] for name in table_texts(tables)}
    assert names == set(tables)
    more = [{**r, "ece_dirichlet": 0.02} for r in ROWS]
    assert "dirichlet" in build_tables(more)
    two = build_tables([*ROWS, row("nll", 0, 0.5, 0.1) | {"setting": "t"}])
    assert list(two["results"]) == ["s", "t"]
    assert list(two["significance"]) == ["s"]


def test_training_is_told_only_where_it_was_measured():
    assert "memorisation" not in build_tables(ROWS)
    rows = [
        row("nll", 0, 0.9, 0.05, train_accuracy=1.0, train_ece=0.001),
        row("nll", 1, 0.9, 0.05, train_accuracy=0.99, train_ece=0.003),
    ]
    table = build_tables(rows)["memorisation"]["s"]
    assert table.rows[0]["train_ece"] == pytest.approx((0.002, 0.001))
    # Less of it is not better.
    assert not {key for _, key in table.best} & {"train_ece", "train_accuracy"}
