from caltrain_tf.experiments import tables
from caltrain_tf.experiments.collect import make_rows
from tests.experiments.rows import run

ROWS = [
    run("nll", 0, accuracy=0.90, ece=0.05, brier=0.2, hyperparameters="a"),
    run("nll", 1, accuracy=0.92, ece=0.07, brier=0.4, hyperparameters="a"),
    run("nll+mmce", 0, accuracy=0.91, ece=0.03, hyperparameters="b"),
    run("nll+mmce", 1, accuracy=0.9, ece=0.02, ece_ts=0.01, hyperparameters=""),
    run("nll+mmce", 2, accuracy=0.905, ece=0.04, hyperparameters="b"),
    run("focal", 0, accuracy=0.85, ece=0.01, hyperparameters="b"),
]


def build(results, shift=None):
    parts = {} if shift is None else {"shift": shift}
    return tables.build_tables(make_rows(results=results, **parts))


def shift_rows(calibrator="none", factor=1):
    """Four corrupted sets, and the clean one, of three runs."""
    return [
        {
            "setting": "s",
            "objective": objective,
            "seed": seed,
            "dataset": "cifar10",
            "corruption": corruption,
            "severity": severity,
            "calibrator": calibrator,
            "metric": "ece",
            "value": factor * (base + 0.01 * severity + extra),
        }
        for objective, seed, base in (
            *(("nll", 0, 0.1), ("nll", 1, 0.2)),
            *(("nll+mmce", 0, 0.0), ("nll+mmce", 1, 0.0), ("focal", 0, -0.01)),
        )
        for corruption, severity, extra in (
            *(("none", 0, 0.0), ("fog", 1, 0.0), ("snow", 1, 0.02)),
            *(("fog", 5, 0.0), ("snow", 5, 0.02)),
        )
    ]


def marks(table, column):
    return table.texts[column].str.endswith("*").tolist()


def test_means_and_errors_are_those_of_hand():
    table = build(ROWS)["results"]
    # Of two ECEs, 0.02 / sqrt(2) is the deviation, and that over sqrt(2) the
    # error; of three runs of NLL + MMCE, one has the ECE after scaling.
    assert table.texts.to_numpy().tolist() == [
        ["NLL", "2", "91.00 ± 1.00*", "6.00 ± 1.00", ""],
        ["NLL + MMCE", "1", "90.50 ± 0.29", "3.00 ± 0.58*", "1.00"],
        ["Focal †", "1", "85.00", "1.00", ""],
    ]
    assert list(table.texts.columns) == [
        *("Objective", "Seeds", "Accuracy (%)", "ECE (%)", "ECE + TS (%)")
    ]


def test_the_best_is_within_one_percent_of_the_accuracy():
    table = build(ROWS)["results"]
    # Focal has the lowest ECE and gives up 6%; one run is the best of nothing.
    assert marks(table, "ECE (%)") == [False, True, False]
    assert marks(table, "Accuracy (%)") == [True, False, False]
    assert not any(marks(table, "ECE + TS (%)"))
    head, first, second, *_ = tables.to_text(table).splitlines()
    assert head.split()[:2] == ["Objective", "Seeds"]
    assert "91.00 ± 1.00*" in first and "3.00 ± 0.58*" in second
    for rows in (ROWS[:2], [ROWS[0], ROWS[2]]):
        assert "*" not in tables.to_text(build(rows)["results"])


def test_paired_tests_need_two_seeds():
    table = build(ROWS)["significance"]
    # (0.03 - 0.05 + 0.02 - 0.07) / 2; for two seeds, t = -7/3 and
    # p = 1 - 2 / pi * atan(7/3).
    assert table.texts.to_numpy().tolist() == [
        ["NLL + MMCE", "NLL", "2", "-3.50", "0.2578", "0.2578"]
    ]
    assert "significance" not in build(ROWS[:1])


def test_hyperparameters_that_differ_between_seeds_are_seen():
    table = build(ROWS)["hyperparameters"]
    assert table.texts.to_numpy().tolist() == [
        ["NLL", "0, 1", "a"],
        ["NLL + MMCE", "0, 2", "b"],
        ["NLL + MMCE", "1", ""],
        ["Focal", "0", "b"],
    ]


def test_tables_of_what_is_there_and_no_others():
    made = build(ROWS)
    for absent in ("calibrators", "significance_ts", "memorisation", "shift"):
        assert absent not in made
    more = [
        {**row, "ece_dirichlet": 0.02, "train_ece": 0.01, "train_accuracy": 1}
        for row in ROWS
    ]
    assert {"calibrators", "memorisation"} <= set(build(more))
    # Less training ECE is not better.
    assert not any(
        marks(
            build(more)["memorisation"],
            "Training ECE of the last epoch's batches (%)",
        )
    )


def test_shift_is_means_over_corruptions_and_then_over_seeds():
    scaled = shift_rows("ts", 0.5)
    table = build(ROWS, [*shift_rows(), *scaled])["shift"]
    # The runs have 0.12 and 0.22 at severity 1.
    assert table.texts.iloc[0].tolist() == [
        *("NLL", "2", "no scaling"),
        *("15.00 ± 5.00", "17.00 ± 5.00", "21.00 ± 5.00"),
    ]
    scaling = ["no scaling"] * 3 + ["TS"] * 3
    assert table.texts["Scaling"].tolist() == scaling
    assert table.texts["Severity 5 (%)"][3] == "10.50 ± 2.50"
    assert table.texts["Severity 1 (%)"][2] == "1.00"
    # Best of each scaling, focal being too inaccurate.
    assert marks(table, "Severity 5 (%)") == [
        False,
        True,
        False,
        False,
        True,
        False,
    ]
    labels = table.texts["Objective"]
    assert ["†" in label for label in labels] == [False, False, True] * 2


def test_our_results_beside_those_of_the_paper():
    # Also of embeddings of the data set.
    setting = "npz:embeddings/cifar10 mlp-512 15 epochs batch 512"
    rows = [{**row, "setting": setting} for row in ROWS]
    rows = [{**row, "ece_ts": 0.02, "ece_ts_sb_ece": 0.01} for row in rows]
    table = build(rows)["paper"]
    first = table.texts.iloc[0]
    assert first["ECE (%)"] == "6.00 ± 1.00"
    assert first["ECE, paper (%)"] == "5.59 ± 0.12"
    assert first["ECE + TS-SB-ECE, paper (%)"] == "1.16 ± 0.11"
    assert "paper" not in build(ROWS)


def test_the_number_of_images_is_said():
    table = build(ROWS, shift_rows())["shift"]
    assert "Clean (%)" in table.texts and "images;" not in table.note
    table = build([{**r, "shift_examples": 500} for r in ROWS], shift_rows())
    assert "Clean, the same 500 images (%)" in table["shift"].texts
    assert "each of 500 images;" in table["shift"].note


def test_nothing_is_marked_where_accuracies_are_too_uncertain():
    rows = [
        {**row, "accuracy": 0.4 + 0.12 * (row["seed"] == 1)} for row in ROWS
    ]
    made = build(rows, shift_rows())
    for name in ("results", "shift"):
        assert "*" not in tables.to_text(made[name])
        assert not made[name].texts["Objective"].str.contains("†").any()
        assert "Nothing is marked" in made[name].note


NAME = r"a_b & <c> | 50% $x^2$ #{1} ~\d"


def test_markdown_marks_and_escapes():
    strange = run(NAME, 0, accuracy=0.9, ece=0.5, hyperparameters="x")
    made = {"s_1": build([*ROWS, strange])["results"]}
    lines = tables.to_markdown(made).splitlines()
    assert lines[0] == "# Accuracy and calibration error"
    assert lines[2] == r"## s\_1"
    assert "| **3.00 ± 0.58** |" in lines[7]
    assert r"| a\_b & \<c\> \| 50% $x^2$ #{1} ~\\d †" in lines[9]
