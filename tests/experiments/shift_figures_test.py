import io

import numpy as np
import pytest

from caltrain_tf.experiments import figures, shift_tables


def rows():
    return [
        {
            "dataset": "cifar10",
            "corruption": corruption,
            "severity": severity,
            "calibrator": calibrator,
            "metric": "ece",
            "value": severity / 10 + index / 100 + (calibrator == "none") / 50,
        }
        for index, corruption in enumerate(("fog", "snow", "glass_blur"))
        for severity in (1, 2, 4)
        for calibrator in ("none", "ts_sb_ece")
    ]


def test_a_line_a_calibrator_with_error_bars():
    means = shift_tables.means_by_severity(rows()).to_dict("records")
    figure = figures.shift_lines(means, title="A network")
    (ax,) = figure.axes
    texts = [text.get_text() for text in figure.legends[0].texts]
    assert texts == ["no scaling", "TS-SB-ECE"]
    for container, name in zip(
        ax.containers, ("none", "ts_sb_ece"), strict=True
    ):
        expected = [m for m in means if m["calibrator"] == name]
        line, _, (bars,) = container
        np.testing.assert_allclose(
            line.get_ydata(), [100 * m["mean"] for m in expected]
        )
        heights = [np.ptp(segment[:, 1]) for segment in bars.get_segments()]
        np.testing.assert_allclose(
            heights, [200 * m["error"] for m in expected], atol=1e-9
        )
    assert [label.get_text() for label in ax.get_xticklabels()] == list("124")
    assert ax.get_title() == "A network"
    figure.savefig(io.BytesIO())


def test_the_clean_set_has_no_error():
    means = [
        {"severity": s, "objective": "nll", "mean": 0.1, "error": float("nan")}
        for s in (0, 1)
    ]
    figure = figures.shift_lines(means, "accuracy")
    (ax,) = figure.axes
    labels = [label.get_text() for label in ax.get_xticklabels()]
    assert labels == ["clean", "1"] and not figure.legends
    figure.savefig(io.BytesIO())


def test_objectives_have_their_styles_and_the_legend_is_below():
    names = [f"nll+loss{index}" for index in range(17)] + ["focal+mmce"]
    means = [
        {"severity": s, "objective": name, "mean": 0.1 * s, "error": 0.01}
        for name in names
        for s in (1, 2)
    ]
    figure = figures.shift_lines(means)
    (ax,) = figure.axes
    line = ax.containers[-1][0]
    style = figures.objective_style("focal+mmce")
    assert (line.get_color(), line.get_marker()) == style[:2]
    assert line.get_linestyle() == style[2]
    texts = [text.get_text() for text in figure.legends[0].texts]
    assert texts[-1] == "Focal + MMCE" and len(texts) == 18
    assert ax.get_legend() is None
    # Points stay closer to their own severity than to the next.
    places = [container[0].get_xdata()[0] for container in ax.containers]
    assert np.ptp(places) < 0.5 and len(set(places)) == 18


def test_the_heat_map_has_a_cell_a_set():
    figure = figures.shift_heatmap(rows()[:-2], calibrator="ts_sb_ece")
    ax = figure.axes[0]
    values = ax.images[0].get_array()
    assert values.shape == (3, 3)
    assert values[1, 2] == pytest.approx(100 * (0.4 + 0.01))
    # Of a set that is not there.
    assert not np.isfinite(np.ma.filled(values, np.nan)[2, 2])
    assert len(ax.texts) == 8
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names == ["fog", "snow", "glass blur"]
    figure.savefig(io.BytesIO())


def test_an_objective_with_a_calibrator_is_a_line_of_its_own():
    means = [
        {"severity": s, "objective": name, "calibrator": calibrator}
        | {"mean": 0.1, "error": 0.01}
        for name, calibrator in (
            ("nll", "none"),
            ("mse", "none"),
            ("nll", "ts"),
        )
        for s in (0, 1)
    ]
    figure = figures.shift_lines(means)
    texts = [text.get_text() for text in figure.legends[0].texts]
    assert texts == ["NLL", "MSE", "NLL + TS"]
    lines = [container[0] for container in figure.axes[0].containers]
    assert lines[2].get_color() == "black" != lines[0].get_color()
