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


def test_the_corner_gives_the_calibration_error():
    logits, labels = over_confident()
    figure = ct.figures.reliability_diagram(
        logits, labels, from_logits=True, title="A network"
    )
    error = ct.metrics.calibration_error(logits, labels, from_logits=True)
    (ax,) = figure.axes
    text = ax.get_legend().get_title().get_text()
    assert text == f"ECE {100 * error:.2f}%"
    assert ax.get_title() == "A network"


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
    assert [ax.get_title() for ax in figure.axes] == ["none", "TS"]
    errors = [
        float(ax.get_legend().get_title().get_text()[4:-1])
        for ax in figure.axes
    ]
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


def test_bad_input_is_an_error():
    with pytest.raises(ValueError, match="`predictions` .*Received"):
        ct.figures.reliability_diagrams({})
    with pytest.raises(ValueError, match="Received"):
        ct.figures.reliability_diagram([[0.5, 0.5]], [0, 1])
    with pytest.raises(ValueError, match="num_bins"):
        ct.figures.reliability_diagram([[0.5, 0.5]], [0], num_bins=0)
