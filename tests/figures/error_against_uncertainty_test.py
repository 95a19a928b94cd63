import io

import numpy as np
import pytest

import caltrain_tf as ct
from tests.evaluation.rows import run

NAMES = ("nll", "focal+sb_ece")


def rows():
    rng = np.random.default_rng(0)
    return [
        run(
            *(name, seed),
            accuracy=rng.random(),
            average_uncertainty=rng.random(),
            ece=rng.random(),
        )
        for name in NAMES
        for seed in range(3)
    ]


def points(figure):
    return [np.transpose(line.get_data()) for line in figure.axes[0].lines]


def test_a_point_a_run_and_larger_means():
    figure = ct.figures.error_against_uncertainty(rows(), title="A set")
    (ax,) = figure.axes
    for index, name in enumerate(NAMES):
        runs, mean = points(figure)[2 * index : 2 * index + 2]
        expected = [
            (row["average_uncertainty"], 100 * row["ece"])
            for row in rows()
            if row["objective"] == name
        ]
        np.testing.assert_allclose(runs, expected)
        np.testing.assert_allclose(mean, [np.mean(expected, axis=0)])
        small, large = ax.lines[2 * index : 2 * index + 2]
        assert small.get_markersize() < large.get_markersize()
        style = ct.figures.objective_style(name)
        for line in (small, large):
            assert (line.get_color(), line.get_marker()) == style[:2]
            assert line.get_linestyle() == "None"
    assert ax.get_xlabel() == "Average uncertainty (nats)"
    assert ax.get_ylabel() == "ECE (%)" and ax.get_title() == "A set"
    texts = [text.get_text() for text in figure.legends[0].texts]
    assert texts == ["NLL", "Focal + SB-ECE"]
    figure.savefig(io.BytesIO())


def test_runs_without_a_metric_are_absent():
    some = rows()
    some[0]["ece"] = float("nan")
    del some[1]["average_uncertainty"]
    some += [run("mse", 0, ece=None, average_uncertainty=0.1)]
    figure = ct.figures.error_against_uncertainty(some)
    assert [len(each) for each in points(figure)] == [1, 1, 3, 1]
    assert len(figure.legends[0].texts) == 2


def test_bad_input_is_an_error():
    with pytest.raises(ValueError, match="`rows` must not be empty"):
        ct.figures.error_against_uncertainty([])
    with pytest.raises(ValueError, match="'average_uncertainty' and 'brier'"):
        ct.figures.error_against_uncertainty(rows(), "brier")
    other = [run("nll", 0, "other", ece=0.1, average_uncertainty=0.1)]
    with pytest.raises(ValueError, match="one setting"):
        ct.figures.error_against_uncertainty(rows() + other)
