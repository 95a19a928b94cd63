import io
import sys

import numpy as np
import pytest
from matplotlib.figure import Figure

import caltrain_tf as ct
from caltrain_tf.figures import reliability
from tests.metrics.cases import sample


def over_confident(size=2000, num_classes=10):
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(size, num_classes))
    flat = np.exp(logits / 2)
    labels = [rng.choice(num_classes, p=row / row.sum()) for row in flat]
    return logits, np.array(labels)


def softmax(logits):
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def bars(ax):
    return [bar for container in ax.containers for bar in container]


def test_bars_are_the_accuracies_and_gaps_of_the_bins():
    logits, labels = over_confident()
    probs = softmax(logits)
    figure = ct.figures.reliability_diagram(probs, labels, num_bins=10)
    assert isinstance(figure, Figure)
    (ax,) = figure.axes
    confidence = probs.max(axis=1)
    correct = probs.argmax(axis=1) == labels
    bins = np.minimum((confidence * 10).astype(int), 9)
    accuracies, gaps = bars(ax)[:10], bars(ax)[10:]
    (histogram,) = ax.child_axes
    shares = bars(histogram)
    assert len(gaps) == len(shares) == 10
    for index in range(10):
        here = bins == index
        assert accuracies[index].get_x() == pytest.approx(index / 10)
        assert shares[index].get_height() == pytest.approx(here.mean())
        accuracy = correct[here].mean() if here.any() else 0.0
        assert accuracies[index].get_height() == pytest.approx(accuracy)
        assert gaps[index].get_y() == pytest.approx(accuracy)
        gap = confidence[here].mean() - accuracy if here.any() else 0.0
        assert gaps[index].get_height() == pytest.approx(gap)
    lines = [line.get_xdata()[0] for line in histogram.lines]
    assert lines == pytest.approx([confidence.mean(), correct.mean()])


def test_the_title_gives_the_calibration_error():
    logits, labels = over_confident()
    figure = ct.figures.reliability_diagram(
        logits, labels, from_logits=True, title="A network"
    )
    error = ct.metrics.calibration_error(logits, labels, from_logits=True)
    (ax,) = figure.axes
    assert ax.get_title("right") == f"ECE {100 * error:.2f}%"
    assert ax.get_title("left") == "A network"


@pytest.mark.parametrize("weight", [None, 1e-3, 1e3])
def test_bins_of_few_predictions_are_faint(weight):
    # 29 and 30 predictions.
    probs = np.repeat([[0.9, 0.1], [0.6, 0.4]], [29, 30], axis=0)
    weights = None
    if weight is not None:
        # Those of weight 0 count nothing.
        probs = np.concatenate([probs, np.full((5, 2), np.nan)])
        weights = np.repeat([weight, 0], [59, 5])
    labels = np.zeros(len(probs), int)
    figure = ct.figures.reliability_diagram(
        probs, labels, num_bins=10, sample_weight=weights
    )
    accuracies = bars(figure.axes[0])[:10]
    assert (accuracies[9].get_alpha() or 1) < 0.5
    assert accuracies[6].get_alpha() is None


def test_it_draws_on_given_axes():
    logits, labels = over_confident(50)
    figure = Figure()
    left, right = figure.subplots(1, 2)
    result = ct.figures.reliability_diagram(
        logits, labels, from_logits=True, ax=right
    )
    assert result is figure
    assert not left.containers and right.containers


def test_several_are_side_by_side():
    logits, labels = over_confident(200)
    pairs = {"none": (logits, labels), "TS": (logits / 2, labels)}
    figure = ct.figures.reliability_diagrams(pairs, from_logits=True)
    assert [ax.get_title("left") for ax in figure.axes] == ["none", "TS"]
    errors = [float(ax.get_title("right")[4:-1]) for ax in figure.axes]
    assert errors[0] > errors[1]


@pytest.mark.parametrize("num_classes", [2, 1000])
def test_saturated_and_single_predictions_are_drawn(num_classes):
    for size in (1, 7):
        probs = np.eye(num_classes)[np.zeros(size, int)]
        figure = ct.figures.reliability_diagram(probs, np.ones(size, int))
        heights = [bar.get_height() for bar in bars(figure.axes[0])]
        assert np.isfinite(heights).all()
        assert heights[-1] == 1.0
        figure.savefig(io.BytesIO())


def test_the_same_input_gives_the_same_file_without_pyplot():
    logits, labels = over_confident(100)
    files = []
    for _ in range(2):
        buffer = io.BytesIO()
        figure = ct.figures.reliability_diagram(
            logits, labels, from_logits=True
        )
        figure.savefig(buffer, format="png")
        files.append(buffer.getvalue())
    assert files[0] == files[1]
    assert files[0].startswith(b"\x89PNG")
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or not pyplot.get_fignums()


def test_bad_predictions_are_an_error():
    with pytest.raises(ValueError, match="`predictions` .*Received"):
        ct.figures.reliability_diagrams({})
    with pytest.raises(ValueError, match="Received"):
        ct.figures.reliability_diagram([[0.5, 0.5]], [0, 1])
    with pytest.raises(ValueError, match="num_bins"):
        ct.figures.reliability_diagram([[0.5, 0.5]], [0], num_bins=0)


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
    rows += reliability_rows("nll", 3, "ts")
    curves = reliability._curves_by_objective(rows, "none", 15)
    assert list(curves) == ["nll", "focal"]
    expected = ct.metrics.reliability_curve(
        *all_together(0, 1), 15, "equal_width"
    )
    # Chance is 1/4: the first bins are empty.
    assert np.isnan(expected.confidence[:3]).all()
    for values, reference in zip(curves["nll"], expected, strict=True):
        np.testing.assert_allclose(values, reference)


def test_empty_bins_may_be_left_out():
    rows = reliability_rows("nll", 0)
    some = [row for row in rows if row["count"]]
    none = [row | {"confidence": None} for row in rows if not row["count"]]
    expected = reliability._curves_by_objective(rows, "none", 15)["nll"]
    for kept in (some, some + none):
        curve = reliability._curves_by_objective(kept, "none", 15)["nll"]
        for values, reference in zip(curve, expected, strict=True):
            np.testing.assert_array_equal(values, reference)


def test_bad_rows_are_an_error():
    rows = reliability_rows("nll", 0)
    with pytest.raises(ValueError, match="`rows` must not be empty"):
        reliability._curves_by_objective([], "none", 15)
    with pytest.raises(ValueError, match="calibrator='ts'"):
        reliability._curves_by_objective(rows, "ts", 15)
    for num_bins in (10, 20):
        with pytest.raises(ValueError, match=f"{num_bins} equal bins.*bin="):
            reliability._curves_by_objective(rows, "none", num_bins)
    one_based = [row | {"bin": row["bin"] + 1} for row in rows]
    with pytest.raises(ValueError, match="with number 0.*Received: bin="):
        reliability._curves_by_objective(one_based, "none", 15)


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


def test_the_title_names_the_error():
    rows = reliability_rows("nll", 0) + reliability_rows("focal", 1)
    figure = ct.figures.reliability_from_rows(rows, errors={"nll": 0.0123})
    error = ct.metrics.calibration_error(
        *all_together(1), binning="equal_width"
    )
    assert [ax.get_title("left") for ax in figure.axes] == [
        "NLL\nECE 1.23%",
        f"Focal\nequal-width ECE {100 * error:.2f}%",
    ]
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


def test_a_line_an_objective_over_all_seeds():
    rows = reliability_rows("nll", 0) + reliability_rows("nll", 1)
    rows += reliability_rows("focal+sb_ece-interleaved", 2)
    rows += reliability_rows("nll", 0, "ts")
    figure = ct.figures.accuracy_against_confidence(rows, title="A set")
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
        accuracy = curve.accuracy[curve.count >= 30]
        np.testing.assert_allclose(line.get_ydata(), accuracy)


def test_a_diagram_of_each_group():
    logits, labels = sample(240, 3)
    tokens = logits.reshape(40, 6, 3), labels.reshape(40, 6)
    groups = np.array(["b", "a"])[np.arange(40) % 2]
    weight = 1.0 * (np.arange(40) >= 10)
    figure = ct.figures.group_reliability(
        *tokens, groups, from_logits=True, sample_weight=weight, columns=2
    )
    table = ct.metrics.groupwise(
        ct.metrics.calibration_error,
        *tokens,
        groups,
        from_logits=True,
        sample_weight=weight,
    )
    errors = {"all": table.overall, **table.values}
    titles = [ax.get_title("left") for ax in figure.axes]
    assert titles == ["all (180)", "a (90)", "b (90)"]
    for ax, error in zip(figure.axes, errors.values(), strict=True):
        assert ax.get_title("right") == f"ECE {100 * error:.2f}%"
    left, right, below = (ax.get_position() for ax in figure.axes)
    assert left.y0 == right.y0 and left.x0 == below.x0


def test_groups_of_several_attributes_are_named_by_them():
    logits, labels = sample(100, 3)
    groups = list(zip(np.tile(["a", "b"], 50), [1] * 100, strict=True))
    figure = ct.figures.group_reliability(
        logits, labels, groups, from_logits=True
    )
    titles = [ax.get_title("left") for ax in figure.axes]
    assert titles == ["all (100)", "a, 1 (50)", "b, 1 (50)"]


def test_too_many_groups():
    logits, labels = sample(100, 3)
    with pytest.raises(ValueError, match="at most 60 .* Received: 100"):
        ct.figures.group_reliability(
            logits, labels, np.arange(100), from_logits=True
        )
