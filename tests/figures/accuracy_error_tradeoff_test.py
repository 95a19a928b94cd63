import io

import numpy as np
import pytest

import caltrain_tf as ct
from tests.evaluation.rows import run


def rows():
    means = {
        "mse": (0.85, 0.02),
        "nll": (0.90, 0.08),
        "focal": (0.80, 0.01),
        "nll+mmce": (0.84, 0.03),
        "focal+mmce": (0.90, 0.09),
    }
    return [
        run(name, seed, accuracy=accuracy + shift, ece=ece + shift / 10)
        for name, (accuracy, ece) in means.items()
        for seed, shift in enumerate((-0.05, 0.05))
    ]


def test_the_front_is_that_of_the_means():
    figure = ct.figures.accuracy_error_tradeoff(rows(), title="A set")
    (ax,) = figure.axes
    front = ax.lines[-1]
    np.testing.assert_allclose(front.get_xdata(), [80, 85, 90])
    np.testing.assert_allclose(front.get_ydata(), [1, 2, 8])
    # Between two of them only the one to the right is accurate enough.
    assert front.get_drawstyle() == "steps-pre"
    np.testing.assert_allclose(
        np.transpose(ax.lines[0].get_data())[0], [80, 1.5]
    )
    np.testing.assert_allclose(np.transpose(ax.lines[1].get_data()), [[85, 2]])
    texts = [text.get_text() for text in figure.legends[0].texts]
    assert texts[0] == "MSE" and texts[-1] == "Pareto front"
    assert len(texts) == 6
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Accuracy (%)", "ECE (%)")
    figure.savefig(io.BytesIO())


def test_another_error():
    some = [row | {"ece_ts": row["ece"] / 2} for row in rows()]
    (ax,) = ct.figures.accuracy_error_tradeoff(some, "ece_ts").axes
    np.testing.assert_allclose(ax.lines[-1].get_ydata(), [0.5, 1, 4])
    assert ax.get_ylabel() == "ECE + TS (%)"


def test_bad_input_is_an_error():
    with pytest.raises(ValueError, match="`rows` must not be empty"):
        ct.figures.accuracy_error_tradeoff([])
    with pytest.raises(ValueError, match="'accuracy' and 'brier'"):
        ct.figures.accuracy_error_tradeoff(rows(), "brier")
