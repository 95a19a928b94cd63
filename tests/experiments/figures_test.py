import io

import numpy as np
import pytest
from matplotlib.colors import to_hex

from caltrain_tf.experiments import figures, statistics
from tests.experiments.rows import run


def effect(objective, d, metric="ece", setting="s"):
    name = objective.removesuffix("-interleaved")
    primary, _, secondary = name.partition("+")
    return {
        "setting": setting,
        "primary": primary,
        "secondary": secondary,
        "interleaved": name != objective,
        "objective": objective,
        "metric": metric,
        "d": d,
    }


EFFECTS = [
    effect("nll+mmce", 1.0),
    effect("focal+mmce", 2.0),
    effect("nll+mmce", 3.0, setting="other"),
    effect("nll+s_avuc", 4.0),
    effect("nll+s_avuc-interleaved", -1.0),
    effect("nll+sb_ece", float("nan")),
    effect("nll+mmce", 0.5, "ece_ts"),
]


def test_bars_are_means_the_best_at_the_top():
    figure = figures.effect_size_bars(EFFECTS, title="Effects")
    (ax,) = figure.axes
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == ["S-AvUC", "MMCE", "S-AvUC\n(interleaved)"]
    assert ax.yaxis_inverted()
    means = {
        (m["secondary"], m["interleaved"], m["metric"]): m["d"]
        for m in statistics.mean_effect_sizes(EFFECTS)
    }
    widths = [bar.get_width() for bar in ax.patches]
    assert widths == pytest.approx(list(means.values()))
    # In the group of its secondary loss; ECE above ECE after scaling.
    middles = [bar.get_y() + bar.get_height() / 2 for bar in ax.patches]
    assert [round(middle) for middle in middles] == [1, 0, 2, 1]
    assert middles[0] < middles[3]
    for bar, name in zip(ax.patches, ("mmce", "s_avuc"), strict=False):
        color = figures.objective_style(f"nll+{name}").color
        assert to_hex(bar.get_facecolor()).upper() == color
    assert ax.get_title() == "Effects"
    figure.savefig(io.BytesIO())


def test_a_mark_a_setting_and_lines_of_large_and_huge_effects():
    (ax,) = figures.effect_size_bars(EFFECTS).axes
    lines = [line for line in ax.lines if line.get_linestyle() == "--"]
    assert [line.get_xdata()[0] for line in lines] == [0.8, 2.0]
    assert [t.get_text() for t in ax.texts] == ["large 0.8", "huge 2.0"]
    marks = [
        (line.get_xdata()[0], line.get_marker())
        for line in ax.lines
        if line.get_linestyle() == "None"
    ]
    expected = [
        (row["d"], figures.objective_style(row["primary"]).marker)
        for row in EFFECTS
        if not np.isnan(row["d"])
    ]
    assert sorted(marks) == sorted(expected)


def test_the_legend_has_metrics_and_primary_losses():
    figure = figures.effect_size_bars(EFFECTS)
    texts = [text.get_text() for text in figure.legends[0].texts]
    assert texts == ["ECE", "ECE + TS", "NLL", "Focal"]


def test_effects_that_are_no_numbers_are_an_error():
    for effects in ([], [effect("nll+mmce", float("nan"))]):
        with pytest.raises(ValueError, match="`effects` must hold.*Received"):
            figures.effect_size_bars(effects)


OBJECTIVES = ("nll", "focal", "nll+mmce", "focal+s_avuc-interleaved")


def summaries(num_seeds=3):
    rng = np.random.default_rng(0)
    rows = [
        run(name, seed, accuracy=0.7 + rng.random() / 10, ece=rng.random())
        for name in OBJECTIVES
        for seed in range(num_seeds)
    ]
    return statistics.summarize_results(rows, ["ece"])


def test_a_bar_an_objective_grouped_by_primary():
    expected = summaries()
    figure = figures.error_bars_by_objective(expected, title="A set")
    (ax,) = figure.axes
    order = [0, 2, 1, 3]
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == [
        *("NLL", "NLL + MMCE", "Focal", "Focal + S-AvUC\n(interleaved)")
    ]
    widths = [bar.get_width() for bar in ax.patches]
    assert widths == pytest.approx(
        [100 * expected[i]["mean"]["ece"] for i in order]
    )
    # A gap between the groups.
    places = np.diff(ax.get_yticks())
    assert places[1] > places[0] == places[2]
    for bar, i in zip(ax.patches, order, strict=True):
        color = figures.objective_style(OBJECTIVES[i]).bar()["facecolor"]
        assert bar.get_facecolor()[:3] != (0, 0, 0)
        assert to_hex(bar.get_facecolor()) == to_hex(color)
    assert ax.get_xlabel() == "ECE (%)" and ax.get_title() == "A set"
    figure.savefig(io.BytesIO())


def test_error_bars_and_the_accuracy_under_the_bars():
    expected = summaries()
    (ax,) = figures.error_bars_by_objective(expected).axes
    by_name = {figures.objective_label(s["objective"]): s for s in expected}
    lengths = {}
    for collection, label in zip(
        ax.collections, ax.get_yticklabels(), strict=True
    ):
        (segment,) = collection.get_segments()
        lengths[label.get_text().replace("\n", " ")] = np.ptp(segment[:, 0])
    for name, summary in by_name.items():
        error = 200 * summary["error"]["ece"]
        assert lengths[name] == pytest.approx(error)
    for text, bar, label in zip(
        ax.texts, ax.patches, ax.get_yticklabels(), strict=True
    ):
        summary = by_name[label.get_text().replace("\n", " ")]
        mean, error = (100 * summary[k]["accuracy"] for k in ("mean", "error"))
        assert text.get_text() == f"accuracy {mean:.1f} ± {error:.1f}%"
        # The axis points down.
        assert text.xy[1] > bar.get_y() + bar.get_height()


def test_one_seed_has_no_error_bar():
    (ax,) = figures.error_bars_by_objective(summaries(1)).axes
    assert len(ax.patches) == 4 and not ax.collections
    assert all("±" not in text.get_text() for text in ax.texts)


def test_what_was_not_measured_is_absent():
    some = summaries()
    del some[1]["mean"]["ece"]
    (ax,) = figures.error_bars_by_objective(some).axes
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert "Focal" not in labels and len(ax.patches) == 3


def test_many_names_do_not_overlap():
    rows = [
        run(f"{p}+{s}{end}", 0, accuracy=0.9, ece=0.1)
        for p in ("nll", "focal", "mse")
        for s in ("mmce", "s_avuc", "sb_marginal_ece")
        for end in ("", "-interleaved")
    ]
    many = statistics.summarize_results(rows, ["ece"])
    figure = figures.error_bars_by_objective(many)
    figure.canvas.draw()
    (ax,) = figure.axes
    boxes = [label.get_window_extent() for label in ax.get_yticklabels()]
    assert all(
        upper.y0 > lower.y1
        for upper, lower in zip(boxes, boxes[1:], strict=False)
    )
    assert min(box.x0 for box in boxes) >= 0


def test_bad_summaries_are_an_error():
    with pytest.raises(ValueError, match="`summaries` must not be empty"):
        figures.error_bars_by_objective([])
    with pytest.raises(ValueError, match="metric='brier'"):
        figures.error_bars_by_objective(summaries(), "brier")
    other = [s | {"setting": s["objective"]} for s in summaries()]
    with pytest.raises(ValueError, match="one setting"):
        figures.error_bars_by_objective(other)


PAIR = ("nll", "focal+sb_ece")


def random_rows():
    rng = np.random.default_rng(0)
    return [
        run(
            *(name, seed),
            accuracy=rng.random(),
            average_uncertainty=rng.random(),
            ece=rng.random(),
        )
        for name in PAIR
        for seed in range(3)
    ]


def points(figure):
    return [np.transpose(line.get_data()) for line in figure.axes[0].lines]


def test_a_point_a_run_and_larger_means():
    figure = figures.error_against_uncertainty(random_rows(), title="A set")
    (ax,) = figure.axes
    for index, name in enumerate(PAIR):
        runs, mean = points(figure)[2 * index : 2 * index + 2]
        expected = [
            (row["average_uncertainty"], 100 * row["ece"])
            for row in random_rows()
            if row["objective"] == name
        ]
        np.testing.assert_allclose(runs, expected)
        np.testing.assert_allclose(mean, [np.mean(expected, axis=0)])
        small, large = ax.lines[2 * index : 2 * index + 2]
        assert small.get_markersize() < large.get_markersize()
        style = figures.objective_style(name)
        for line in (small, large):
            assert (line.get_color(), line.get_marker()) == style[:2]
            assert line.get_linestyle() == "None"
    assert ax.get_xlabel() == "Average uncertainty (nats)"
    assert ax.get_ylabel() == "ECE (%)" and ax.get_title() == "A set"
    texts = [text.get_text() for text in figure.legends[0].texts]
    assert texts == ["NLL", "Focal + SB-ECE"]
    figure.savefig(io.BytesIO())


def test_runs_without_a_metric_are_absent():
    some = random_rows()
    some[0]["ece"] = float("nan")
    del some[1]["average_uncertainty"]
    some += [run("mse", 0, ece=None, average_uncertainty=0.1)]
    figure = figures.error_against_uncertainty(some)
    assert [len(each) for each in points(figure)] == [1, 1, 3, 1]
    assert len(figure.legends[0].texts) == 2


def test_bad_runs_are_an_error():
    with pytest.raises(ValueError, match="`rows` must not be empty"):
        figures.error_against_uncertainty([])
    with pytest.raises(ValueError, match="'average_uncertainty' and 'brier'"):
        figures.error_against_uncertainty(random_rows(), "brier")
    other = [run("nll", 0, "other", ece=0.1, average_uncertainty=0.1)]
    with pytest.raises(ValueError, match="one setting"):
        figures.error_against_uncertainty(random_rows() + other)


def known_rows():
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
    figure = figures.accuracy_error_tradeoff(known_rows(), title="A set")
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
    some = [row | {"ece_ts": row["ece"] / 2} for row in known_rows()]
    (ax,) = figures.accuracy_error_tradeoff(some, "ece_ts").axes
    np.testing.assert_allclose(ax.lines[-1].get_ydata(), [0.5, 1, 4])
    assert ax.get_ylabel() == "ECE + TS (%)"


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


def test_bad_points_are_an_error():
    for points in ([1.0, 2.0], [[1.0, np.nan]]):
        with pytest.raises(ValueError, match="`points` must be.*Received"):
            figures.pareto_front(points)
