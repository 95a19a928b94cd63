import io

import numpy as np
import pytest

import caltrain_tf as ct
from tests.figures.reliability_rows_test import all_together
from tests.figures.reliability_rows_test import reliability_rows


def geometry(ax):
    axes = [ax, *ax.child_axes]
    return [
        bar.get_bbox().get_points().tolist()
        for each in axes
        for bar in each.patches
    ]


def test_it_draws_what_the_predictions_give():
    rows = reliability_rows("nll", 0) + reliability_rows("nll", 1)
    rows += reliability_rows("focal+sb_ece", 2)
    figure = ct.figures.reliability_from_rows(rows)
    assert [ax.get_title() for ax in figure.axes] == ["NLL", "Focal + SB-ECE"]
    expected = ct.figures.reliability_diagram(*all_together(0, 1))
    np.testing.assert_allclose(
        geometry(figure.axes[0]), geometry(expected.axes[0]), atol=1e-12
    )
    lines = [
        [line.get_xdata()[0] for line in f.axes[0].child_axes[0].lines]
        for f in (figure, expected)
    ]
    assert lines[0] == pytest.approx(lines[1])
    figure.savefig(io.BytesIO())


def test_the_corner_names_the_error():
    rows = reliability_rows("nll", 0) + reliability_rows("focal", 1)
    figure = ct.figures.reliability_from_rows(rows, errors={"nll": 0.0123})
    error = ct.metrics.calibration_error(
        *all_together(1), binning="equal_width"
    )
    texts = [ax.texts[0].get_text() for ax in figure.axes]
    assert texts == ["ECE 1.23%", f"equal-width ECE {100 * error:.2f}%"]
    texts = [text.get_text() for text in figure.legends[0].texts]
    assert texts == ["accuracy", "gap to confidence"]


@pytest.mark.parametrize("count", [1, 3, 6])
def test_a_grid_keeps_diagrams_apart(count):
    # The longest names that there are.
    rows = [
        row
        for secondary in ("sb_marginal_ece", "s_avuc")
        for seed, primary in enumerate(("focal", "mse", "nll"))
        for row in reliability_rows(f"{primary}+{secondary}-interleaved", seed)
    ][: 15 * count]
    figure = ct.figures.reliability_from_rows(rows)
    assert len(figure.axes) == count
    figure.canvas.draw()
    boxes = [ax.get_tightbbox() for ax in figure.axes]
    boxes.append(figure.legends[0].get_window_extent())
    for index, first in enumerate(boxes):
        assert 0 <= first.x0 and first.x1 <= figure.bbox.width
        assert 0 <= first.y0 and first.y1 <= figure.bbox.height
        assert not first.count_overlaps(boxes[index + 1 :])


def test_bad_input_is_an_error():
    with pytest.raises(ValueError, match="`rows` must not be empty"):
        ct.figures.reliability_from_rows([])
    with pytest.raises(ValueError, match="calibrator='ts'"):
        ct.figures.reliability_from_rows(
            reliability_rows("nll", 0), calibrator="ts"
        )
