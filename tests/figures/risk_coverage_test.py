import numpy as np
import pytest

import caltrain_tf as ct
from tests.metrics.cases import probabilities


def test_draws_the_curve():
    probs, labels = probabilities(300, 3)
    figure = ct.figures.risk_coverage(probs, labels, label="NLL")
    (ax,) = figure.axes
    curve = ct.metrics.risk_coverage_curve(probs, labels)
    drawn, best = ax.lines
    np.testing.assert_array_equal(drawn.get_xdata()[1:], curve.coverage)
    np.testing.assert_array_equal(drawn.get_ydata()[1:], curve.risk)
    area = ct.metrics.aurc(probs, labels)
    text = ax.get_legend().get_texts()[0].get_text()
    assert text == f"NLL: AURC {100 * area:.2f}%"
    # The best order of the same predictions ends where the curve does.
    _, correct, _ = ct.inputs.top_labels(probs, labels)
    ranked = np.sort(~correct)
    risks = np.cumsum(ranked) / np.arange(1, 301)
    expected = np.interp(best.get_xdata()[2:], curve.coverage, risks)
    np.testing.assert_allclose(best.get_ydata()[2:], expected, atol=2e-3)
    assert best.get_ydata()[-1] == pytest.approx(curve.risk[-1])


def test_a_second_curve_fits_in():
    probs, labels = probabilities(200, 3)
    figure = ct.figures.risk_coverage(probs, probs.argmax(axis=1))
    (ax,) = figure.axes
    assert ax.get_ylim() == (0, 0.01)
    logits = np.log(probs)
    same = ct.figures.risk_coverage(logits, labels, from_logits=True, ax=ax)
    assert same is figure and len(ax.lines) == 4
    highest = max(line.get_ydata().max() for line in ax.lines)
    assert ax.get_ylim()[1] > highest
    assert len(ax.get_legend().get_texts()) == 2
