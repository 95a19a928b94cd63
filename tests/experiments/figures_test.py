import io

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from caltrain_tf.experiments import figures, statistics
from tests.experiments.rows import run


def effect(objective, d, metric="ece", setting="s"):
    row = run(objective, 0, setting, metric=metric, d=d)
    return {key: row[key] for key in row if key != "seed"}


EFFECTS = pd.DataFrame(
    [
        effect("nll+mmce", 1.0),
        effect("focal+mmce", 2.0),
        effect("nll+mmce", 3.0, setting="other"),
        effect("nll+s_avuc", 4.0),
        effect("nll+s_avuc-interleaved", -1.0),
        effect("nll+sb_ece", 1.0),
        effect("nll+mmce", 0.5, "ece_ts"),
    ]
)


def test_bars_are_means_the_best_at_the_top():
    figure = figures.effect_size_bars(EFFECTS)
    (ax,) = figure.axes
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == ["MMCE", "S-AvUC", "SB-ECE"] and ax.yaxis_inverted()
    # Interleaved runs are pooled with the others.
    widths = [bar.get_width() for bar in ax.patches]
    assert widths == pytest.approx([2.0, 1.5, 1.0, 0.5])
    # In the group of its secondary loss; ECE above ECE after scaling.
    middles = [bar.get_y() + bar.get_height() / 2 for bar in ax.patches]
    assert [round(middle) for middle in middles] == [0, 1, 2, 0]
    assert middles[0] < middles[3]
    for bar, name in zip(ax.patches, ("mmce", "s_avuc"), strict=False):
        color = figures.objective_style(f"nll+{name}")[0]
        assert to_hex(bar.get_facecolor()).upper() == color
    figure.savefig(io.BytesIO())


def test_a_mark_a_setting_and_lines_of_large_and_huge_effects():
    figure = figures.effect_size_bars(EFFECTS)
    (ax,) = figure.axes
    lines = [line for line in ax.lines if line.get_linestyle() == "--"]
    assert [line.get_xdata()[0] for line in lines] == [0.8, 2.0]
    assert [t.get_text() for t in ax.texts] == ["large 0.8", "huge 2.0"]
    marks = [
        (line.get_xdata()[0], line.get_marker(), line.get_markerfacecolor())
        for line in ax.lines
        if line.get_linestyle() == "None"
    ]
    expected = [
        (
            row.d,
            figures.objective_style(row.primary)[1],
            "white" if row.interleaved else "black",
        )
        for row in EFFECTS.itertuples()
    ]
    assert sorted(marks) == sorted(expected)
    texts = [text.get_text() for text in figure.legends[0].texts]
    assert texts == ["ECE", "ECE + TS", "NLL", "Focal", "interleaved"]


OBJECTIVES = ("nll", "focal", "nll+mmce", "focal+s_avuc-interleaved")


def summary(num_seeds=3, objectives=OBJECTIVES):
    rng = np.random.default_rng(0)
    rows = [
        run(name, seed, accuracy=0.7 + rng.random() / 10, ece=rng.random())
        for name in objectives
        for seed in range(num_seeds)
    ]
    return statistics.summarize(pd.DataFrame(rows), ["ece"])


def test_a_bar_an_objective_grouped_by_primary():
    expected = summary()
    figure = figures.error_bars_by_objective(expected)
    (ax,) = figure.axes
    order = [OBJECTIVES[i] for i in (0, 2, 1, 3)]
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == [
        *("NLL", "NLL + MMCE", "Focal", "Focal + S-AvUC\n(interleaved)")
    ]
    widths = [bar.get_width() for bar in ax.patches]
    assert widths == pytest.approx(list(100 * expected.mean["ece"][order]))
    # A gap between the groups.
    places = np.diff(ax.get_yticks())
    assert places[1] > places[0] == places[2]
    for bar, name in zip(ax.patches, order, strict=True):
        color, *_, filled = figures.objective_style(name)
        shown = to_hex(bar.get_facecolor())
        assert shown == to_hex(color if filled else "white")
    for collection, text, bar, name in zip(
        ax.collections, ax.texts, ax.patches, order, strict=True
    ):
        mean, error = expected.mean.loc[name], expected.error.loc[name]
        (segment,) = collection.get_segments()
        assert np.ptp(segment[:, 0]) == pytest.approx(200 * error["ece"])
        assert text.get_text() == (
            f"accuracy {100 * mean['accuracy']:.1f} "
            f"± {100 * error['accuracy']:.1f}%"
        )
        # The axis points down.
        assert text.xy[1] > bar.get_y() + bar.get_height()
    assert ax.get_xlabel() == "ECE (%)"
    figure.savefig(io.BytesIO())


def test_one_seed_has_no_error_bar_and_what_was_not_measured_no_bar():
    (ax,) = figures.error_bars_by_objective(summary(1)).axes
    assert len(ax.patches) == 4 and not ax.collections
    assert all("±" not in text.get_text() for text in ax.texts)
    some = summary()
    some.mean.loc["focal", "ece"] = float("nan")
    (ax,) = figures.error_bars_by_objective(some).axes
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert "Focal" not in labels and len(ax.patches) == 3


def test_many_names_do_not_overlap():
    names = [
        f"{p}+{s}{end}"
        for p in ("nll", "focal", "mse")
        for s in ("mmce", "s_avuc", "sb_marginal_ece")
        for end in ("", "-interleaved")
    ]
    figure = figures.error_bars_by_objective(summary(1, names))
    figure.canvas.draw()
    (ax,) = figure.axes
    boxes = [label.get_window_extent() for label in ax.get_yticklabels()]
    assert all(
        upper.y0 > lower.y1
        for upper, lower in zip(boxes, boxes[1:], strict=False)
    )
    assert min(box.x0 for box in boxes) >= 0


def known_results():
    means = {
        "mse": (0.85, 0.02),
        "nll": (0.90, 0.08),
        "focal": (0.80, 0.01),
        "nll+mmce": (0.84, 0.03),
        "focal+mmce": (0.90, 0.09),
    }
    rows = [
        run(name, seed, accuracy=accuracy + shift, ece=ece + shift / 10)
        for name, (accuracy, ece) in means.items()
        for seed, shift in enumerate((-0.05, 0.05))
    ]
    return pd.DataFrame(rows)


def test_runs_means_and_the_front_of_the_means():
    results = known_results()
    results.loc[10] = pd.Series(run("esd", 0, accuracy=0.9, ece=float("nan")))
    figure = figures.metric_scatter(results, "accuracy", "ece", front=True)
    (ax,) = figure.axes
    front = ax.lines[-1]
    np.testing.assert_allclose(front.get_xdata(), [80, 85, 90])
    np.testing.assert_allclose(front.get_ydata(), [1, 2, 8])
    # Between two of them only the one to the right is accurate enough.
    assert front.get_drawstyle() == "steps-pre"
    runs, mean = ax.lines[:2]
    np.testing.assert_allclose(np.transpose(runs.get_data())[0], [80, 1.5])
    np.testing.assert_allclose(np.transpose(mean.get_data()), [[85, 2]])
    assert runs.get_markersize() < mean.get_markersize()
    style = figures.objective_style("mse")
    for line in (runs, mean):
        assert (line.get_color(), line.get_marker()) == style[:2]
    texts = [text.get_text() for text in figure.legends[0].texts]
    assert texts[0] == "MSE" and texts[-1] == "Pareto front"
    assert len(texts) == 6
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Accuracy (%)", "ECE (%)")
    figure.savefig(io.BytesIO())


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_it_is_what_comparing_all_pairs_finds(columns):
    rng = np.random.default_rng(columns)
    # Few values, so that many are the same.
    points = rng.integers(0, 5, (40, columns))
    expected = [
        not any(
            all(b <= a for a, b in zip(point, other, strict=True))
            and tuple(other) != tuple(point)
            for other in points
        )
        for point in points
    ]
    front = figures.pareto_front(points)
    assert front.tolist() == expected
    assert 0 < front.sum() < 40


def test_equal_points_are_all_on_the_front():
    front = figures.pareto_front([[1, 1], [1, 1], [2, 1]])
    assert front.tolist() == [True, True, False]
    assert figures.pareto_front(np.zeros((0, 2))).shape == (0,)
