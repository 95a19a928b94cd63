import numpy as np
import pytest

from caltrain_tf import evaluation
from tests.evaluation.rows import run


def test_means_and_errors_over_seeds():
    rng = np.random.default_rng(0)
    table = rng.random((2, 3, 2))
    rows = [
        run(name, seed, accuracy=accuracy, ece=ece)
        for name, column in zip(("nll", "nll+mmce"), table, strict=True)
        for seed, (accuracy, ece) in enumerate(column)
    ]
    summaries = evaluation.summarize_results(rows, ["ece"])
    assert [s["objective"] for s in summaries] == ["nll", "nll+mmce"]
    for summary, column in zip(summaries, table, strict=True):
        for index, metric in enumerate(("accuracy", "ece")):
            values = column[:, index]
            assert summary["mean"][metric] == pytest.approx(values.mean())
            error = evaluation.standard_error(values)
            assert summary["error"][metric] == pytest.approx(error)
            assert summary["count"][metric] == 3
    assert summaries[1]["secondary"] == "mmce"


def test_the_best_gives_up_less_than_one_percent_of_accuracy():
    rows = [
        run("nll", 0, accuracy=0.90, ece=0.08),
        run("focal", 0, accuracy=0.88, ece=0.01),
        run("nll+mmce", 0, accuracy=0.891, ece=0.03),
        run("nll+sb_ece", 0, accuracy=0.93, ece=0.04),
        run("nll", 0, "other", accuracy=0.5, ece=0.5),
    ]
    summaries = evaluation.summarize_results(rows, ["ece"])
    # Against the most accurate primary loss alone, not against SB-ECE.
    within = [s["within_accuracy"] for s in summaries]
    assert within == [True, False, True, True, True]
    best = [s["best"]["ece"] for s in summaries]
    assert best == [False, False, True, False, True]
    best = [s["best"]["accuracy"] for s in summaries]
    assert best == [False, False, False, True, True]
    loose = evaluation.summarize_results(rows, ["ece"], max_accuracy_loss=0.05)
    assert [s["best"]["ece"] for s in loose][:2] == [False, True]


def test_without_a_primary_alone_all_are_compared():
    rows = [
        run("nll+mmce", 0, accuracy=0.80, ece=0.01),
        run("nll+sb_ece", 0, accuracy=0.90, ece=0.04),
    ]
    summaries = evaluation.summarize_results(rows, ["ece"])
    assert [s["within_accuracy"] for s in summaries] == [False, True]


def test_missing_metrics_are_absent_and_one_run_has_no_error():
    rows = [
        run("nll", 0, accuracy=0.9, ece_dirichlet=0.1, temperature_ts=1.0),
        run("focal", 0, accuracy=0.9, ece_dirichlet=None, temperature_ts=2.0),
    ]
    names = ["ece_dirichlet", "temperature_ts"]
    nll, focal = evaluation.summarize_results(rows, names)
    assert np.isnan(nll["error"]["ece_dirichlet"])
    assert nll["best"]["ece_dirichlet"]
    for part in ("mean", "error", "count", "best"):
        assert "ece_dirichlet" not in focal[part]
    # Of no temperature is more or less better.
    assert not nll["best"]["temperature_ts"]
    assert not focal["best"]["temperature_ts"]


def test_bad_input_is_an_error():
    with pytest.raises(ValueError, match="`rows` must not be empty"):
        evaluation.summarize_results([])
    with pytest.raises(ValueError, match="metric='ece_ts'"):
        evaluation.summarize_results([run("nll", 0, accuracy=0.9)], ["ece_ts"])
