import math

import pytest

from caltrain_tf.report import table_files
from caltrain_tf.report.rows import Rows
from caltrain_tf.report.shift_table import shift_table


def row(objective, seed, corruption, severity, value, **more):
    return {
        "setting": "s",
        "objective": objective,
        "seed": seed,
        "dataset": "cifar10",
        "corruption": corruption,
        "severity": severity,
        "calibrator": "none",
        "metric": "ece",
        "value": value,
        **more,
    }


# Four corrupted sets, and the clean one, of three runs.
ROWS = [
    row(objective, seed, corruption, severity, base + 0.01 * severity + extra)
    for objective, seed, base in (
        ("nll", 0, 0.1),
        ("nll", 1, 0.2),
        ("focal+sb_ece", 0, 0.0),
    )
    for corruption, severity, extra in (
        ("none", 0, 0.0),
        ("fog", 1, 0.0),
        ("snow", 1, 0.02),
        ("fog", 5, 0.0),
        ("snow", 5, 0.02),
    )
]


def test_means_over_corruptions_and_then_over_seeds():
    table = shift_table(ROWS)
    assert [column.title for column in table.columns] == [
        "Objective",
        "Seeds",
        "Scaling",
        "Clean (%)",
        "Severity 1 (%)",
        "Severity 5 (%)",
    ]
    nll, soft = table.rows
    assert (nll["seeds"], soft["seeds"]) == (2, 1)
    # The runs have 0.12 and 0.22 at severity 1.
    assert nll["severity_1"] == pytest.approx((0.17, 0.05))
    assert nll["severity_5"].mean == pytest.approx(0.21)
    assert nll["severity_0"].mean == pytest.approx(0.15)
    assert soft["severity_1"].mean == pytest.approx(0.02)
    assert math.isnan(soft["severity_1"].error)


def test_scalings_follow_each_other():
    scaled = [{**r, "calibrator": "ts", "value": r["value"] / 2} for r in ROWS]
    table = shift_table([*scaled, *ROWS])
    assert [(r["objective"], r["scaling"]) for r in table.rows] == [
        ("nll", "no scaling"),
        ("focal+sb_ece", "no scaling"),
        ("nll", "TS"),
        ("focal+sb_ece", "TS"),
    ]
    assert table.rows[2]["severity_1"].mean == pytest.approx(0.085)


def test_only_the_sets_that_all_runs_have():
    fewer = [
        r
        for r in ROWS
        if (r["objective"], r["corruption"]) != ("focal+sb_ece", "snow")
    ]
    # Without snow.
    assert shift_table(fewer).rows[0]["severity_1"].mean == pytest.approx(0.16)
    clean = [r for r in ROWS if not r["severity"]]
    assert shift_table(clean) is None
    assert shift_table([]) is None
    accuracy = [{**r, "metric": "accuracy"} for r in ROWS]
    assert shift_table(accuracy) is None


def test_it_is_among_the_tables_of_a_setting():
    results = [
        {
            "setting": setting,
            "objective": "nll",
            "primary": "nll",
            "secondary": "",
            "interleaved": False,
            "seed": 0,
            "accuracy": 0.9,
            "ece": 0.1,
        }
        for setting in ("s", "t")
    ]
    tables = table_files.build_tables(Rows(results, [], ROWS, []))
    assert list(tables["shift"]) == ["s"]
    text = table_files.table_texts(tables)["shift.md"]
    assert "| NLL | 2 | no scaling | 15.00 ± 5.00 | 17.00 ± 5.00 |" in text
