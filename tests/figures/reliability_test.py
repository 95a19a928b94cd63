import io
import sys

import numpy as np
import pytest
from matplotlib.figure import Figure

import caltrain_tf as ct


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
    assert ax.get_title("right") == f"ECE {100 * error:.2f}% (equal mass)"
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


def test_several_are_side_by_side():
    logits, labels = over_confident(200)
    pairs = {"none": (logits, labels), "TS": (logits / 2, labels)}
    figure = ct.figures.reliability_diagrams(pairs, from_logits=True)
    assert [ax.get_title("left") for ax in figure.axes] == ["none", "TS"]
    errors = [ax.get_title("right").split()[1] for ax in figure.axes]
    assert float(errors[0][:-1]) > float(errors[1][:-1])
    five = {str(i): (logits, labels) for i in range(5)}
    figure = ct.figures.reliability_diagrams(five, from_logits=True)
    first, *_, fourth, fifth = (ax.get_position() for ax in figure.axes)
    assert first.y0 == fourth.y0 and first.x0 == fifth.x0


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


def test_bars_of_class_1():
    rng = np.random.default_rng(0)
    probs = rng.random(500)
    labels = (rng.random(500) < probs).astype(int)
    figure = ct.figures.reliability_diagram(
        probs, labels, num_bins=10, positive=True
    )
    (ax,) = figure.axes
    curve = ct.metrics.reliability_curve(
        probs, labels, 10, "equal_width", positive=True
    )
    heights = [bar.get_height() for bar in bars(ax)[:10]]
    assert heights == pytest.approx(curve.accuracy)
    gaps = curve.confidence - curve.accuracy
    error = 100 * np.sqrt(np.sum(curve.count / 500 * gaps**2))
    assert ax.get_title("right") == f"ECE {error:.2f}% (equal width)"
    assert ax.get_ylabel() == "Share of class 1"
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "share of class 1" in legend and "mean probability" in legend
