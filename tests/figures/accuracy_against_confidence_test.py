import io

import numpy as np
import pytest

import caltrain_tf as ct
from tests.figures.reliability_rows_test import all_together
from tests.figures.reliability_rows_test import reliability_rows


def test_a_line_an_objective_over_all_seeds():
    rows = reliability_rows("nll", 0) + reliability_rows("nll", 1)
    rows += reliability_rows("focal+sb_ece-interleaved", 2)
    rows += reliability_rows("nll", 0, "ts")
    figure = ct.figures.accuracy_against_confidence(rows, title="A set")
    (ax,) = figure.axes
    diagonal, nll, focal = ax.lines
    np.testing.assert_array_equal(diagonal.get_xdata(), diagonal.get_ydata())
    for line, seeds in ((nll, (0, 1)), (focal, (2,))):
        curve = ct.metrics.reliability_curve(
            *all_together(*seeds), 15, "equal_width"
        )
        filled = curve.count > 0
        assert not filled.all()
        np.testing.assert_allclose(line.get_xdata(), curve.confidence[filled])
        np.testing.assert_allclose(line.get_ydata(), curve.accuracy[filled])
    style = ct.figures.objective_style("focal+sb_ece-interleaved")
    assert (focal.get_color(), focal.get_marker()) == style[:2]
    assert focal.get_markerfacecolor() == "white"
    texts = [text.get_text() for text in figure.legends[0].texts]
    assert texts == ["calibrated", "NLL", "Focal + SB-ECE (interleaved)"]
    assert ax.get_title() == "A set"
    figure.savefig(io.BytesIO())


def test_the_calibrator_is_chosen():
    rows = reliability_rows("nll", 0) + reliability_rows("nll", 1, "ts")
    lines = [
        ct.figures.accuracy_against_confidence(rows, name).axes[0].lines[1]
        for name in ("none", "ts")
    ]
    for line, seed in zip(lines, (0, 1), strict=True):
        curve = ct.metrics.reliability_curve(
            *all_together(seed), 15, "equal_width"
        )
        accuracy = curve.accuracy[curve.count > 0]
        np.testing.assert_allclose(line.get_ydata(), accuracy)


def test_bad_input_is_an_error():
    with pytest.raises(ValueError, match="`rows` must not be empty"):
        ct.figures.accuracy_against_confidence([])
    rows = reliability_rows("nll", 0)
    with pytest.raises(ValueError, match="calibrator='ts_sb_ece'"):
        ct.figures.accuracy_against_confidence(rows, "ts_sb_ece")
