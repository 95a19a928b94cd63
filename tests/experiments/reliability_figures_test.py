import io

import numpy as np
import pandas as pd
import pytest

import caltrain_tf as ct
from caltrain_tf.experiments import figures


def predictions(seed, size=400, num_classes=4):
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(size, num_classes))
    powers = np.exp(logits)
    probs = powers / powers.sum(axis=1, keepdims=True)
    return probs, rng.integers(0, num_classes, size)


def reliability_rows(objective, seed, calibrator="none", num_bins=15, **more):
    """The rows of a run, of `predictions(seed, **more)`."""
    curve = ct.metrics.reliability_curve(
        *predictions(seed, **more), num_bins, "equal_width"
    )
    return [
        {
            "setting": "s",
            "objective": objective,
            "seed": seed,
            "calibrator": calibrator,
            "bin": index,
            "confidence": confidence,
            "accuracy": accuracy,
            "count": count,
        }
        for index, (confidence, accuracy, count) in enumerate(
            zip(*(values.tolist() for values in curve), strict=True)
        )
    ]


def all_together(*seeds):
    pairs = [predictions(seed) for seed in seeds]
    probs = np.concatenate([pair[0] for pair in pairs])
    return probs, np.concatenate([pair[1] for pair in pairs])


def test_seeds_together_are_the_curve_of_all_predictions():
    rows = reliability_rows("nll", 0) + reliability_rows("nll", 1)
    rows += reliability_rows("focal", 2)
    curves = figures.curves_by_objective(pd.DataFrame(rows))
    assert list(curves) == ["nll", "focal"]
    expected = ct.metrics.reliability_curve(
        *all_together(0, 1), 15, "equal_width"
    )
    # Chance is 1/4: the first bins are empty.
    assert np.isnan(expected.confidence[:3]).all()
    for values, reference in zip(curves["nll"], expected, strict=True):
        np.testing.assert_allclose(values, reference)


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
    figure = figures.reliability_by_objective(
        pd.DataFrame(rows), {row["objective"]: 0.0123 for row in rows}
    )
    expected = ct.figures.reliability_diagram(*all_together(0, 1))
    np.testing.assert_allclose(
        geometry(figure.axes[0]), geometry(expected.axes[0]), atol=1e-12
    )
    lines = [
        [line.get_xdata()[0] for line in f.axes[0].child_axes[0].lines]
        for f in (figure, expected)
    ]
    assert lines[0] == pytest.approx(lines[1])
    titles = [ax.get_title("left") for ax in figure.axes]
    assert titles == ["NLL\nECE 1.23%", "Focal + SB-ECE\nECE 1.23%"]
    figure.savefig(io.BytesIO())


@pytest.mark.parametrize("count", [1, 3, 6])
def test_a_grid_keeps_diagrams_apart(count):
    # The longest names that there are.
    rows = [
        row
        for secondary in ("sb_marginal_ece", "s_avuc")
        for seed, primary in enumerate(("focal", "mse", "nll"))
        for row in reliability_rows(f"{primary}+{secondary}-interleaved", seed)
    ][: 15 * count]
    figure = figures.reliability_by_objective(
        pd.DataFrame(rows), {row["objective"]: 0.0123 for row in rows}
    )
    assert len(figure.axes) == count
    figure.canvas.draw()
    boxes = [ax.get_tightbbox() for ax in figure.axes]
    boxes.append(figure.legends[0].get_window_extent())
    for index, first in enumerate(boxes):
        assert 0 <= first.x0 and first.x1 <= figure.bbox.width
        assert 0 <= first.y0 and first.y1 <= figure.bbox.height
        assert not first.count_overlaps(boxes[index + 1 :])


def test_a_line_an_objective_over_all_seeds():
    rows = reliability_rows("nll", 0) + reliability_rows("nll", 1)
    rows += reliability_rows("focal+sb_ece-interleaved", 2)
    figure = figures.accuracy_against_confidence(pd.DataFrame(rows))
    (ax,) = figure.axes
    diagonal, nll, nll_few, focal, _ = ax.lines
    np.testing.assert_array_equal(diagonal.get_xdata(), diagonal.get_ydata())
    both = ct.metrics.reliability_curve(*all_together(0, 1), 15, "equal_width")
    for line, seeds in ((nll, (0, 1)), (focal, (2,))):
        curve = ct.metrics.reliability_curve(
            *all_together(*seeds), 15, "equal_width"
        )
        filled = curve.count >= 30
        assert not filled.all()
        np.testing.assert_allclose(line.get_xdata(), curve.confidence[filled])
        np.testing.assert_allclose(line.get_ydata(), curve.accuracy[filled])
    few = (both.count > 0) & (both.count < 30)
    assert few.any() and nll_few.get_alpha() < 0.5
    np.testing.assert_allclose(nll_few.get_xdata(), both.confidence[few])
    style = figures.objective_style("focal+sb_ece-interleaved")
    assert (focal.get_color(), focal.get_marker()) == style[:2]
    assert focal.get_markerfacecolor() == "white"
    texts = [text.get_text() for text in figure.legends[0].texts]
    assert texts == ["calibrated", "NLL", "Focal + SB-ECE (interleaved)"]
    figure.savefig(io.BytesIO())
