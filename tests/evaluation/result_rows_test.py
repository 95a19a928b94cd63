import pytest

from caltrain_tf.evaluation import result_rows
from tests.evaluation.rows import run


def test_values_are_by_objective_and_seed():
    rows = [
        run("nll", 0, ece=0.1),
        run("nll", 1, ece=0.2),
        run("focal", 0, ece=0.3),
        run("focal", 1, ece=float("nan")),
        run("focal", 2, ece=None),
        run("mse", 0),
        run("nll", 0, "other", ece=0.4),
    ]
    assert result_rows.values_by_objective(rows, "ece") == {
        ("s", "nll"): {0: 0.1, 1: 0.2},
        ("s", "focal"): {0: 0.3},
        ("other", "nll"): {0: 0.4},
    }


def test_primaries_alone():
    rows = [
        run("nll", 0),
        run("nll+mmce", 0),
        run("focal+mmce-interleaved", 0),
        run("nll", 0, "other"),
    ]
    assert result_rows.primaries_alone(rows) == {
        ("s", "nll"): "nll",
        ("other", "nll"): "nll",
    }
    parts = result_rows.objective_parts(rows)["s", "focal+mmce-interleaved"]
    assert parts == {
        "primary": "focal",
        "secondary": "mmce",
        "interleaved": True,
    }


def test_more_or_less_is_better():
    signs = {
        "accuracy": 1,
        "ece": -1,
        "ece_dirichlet": -1,
        "brier_ts_sb_ece": -1,
        "mean_sweep_ce": -1,
        "ks_error_ts": -1,
        "temperature_ts": 0,
        "average_uncertainty": 0,
    }
    assert {name: result_rows.better_sign(name) for name in signs} == signs


def test_bad_input_is_an_error():
    with pytest.raises(ValueError, match="`rows` must not be empty"):
        result_rows.values_by_objective([], "ece")
    rows = [run("nll", 0, ece=0.1), run("nll", 0, ece=0.2)]
    with pytest.raises(ValueError, match="objective='nll', seed=0"):
        result_rows.values_by_objective(rows, "ece")
    with pytest.raises(ValueError, match="mean 'ece'.*metric='ecee'"):
        result_rows.values_by_objective(rows, "ecee")
