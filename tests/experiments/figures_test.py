import io

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

import caltrain_tf as ct
from caltrain_tf.experiments import figures, statistics
from caltrain_tf.figures import style
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
    assert widths[:4] == pytest.approx([2.0, 1.5, 1.0, 0.5])
    # In the group of its secondary loss; ECE above ECE after scaling.
    middles = [bar.get_y() + bar.get_height() / 2 for bar in ax.patches]
    assert [round(middle) for middle in middles[:4]] == [0, 1, 2, 0]
    assert middles[0] < middles[3]
    colors = [to_hex(bar.get_facecolor()) for bar in ax.patches]
    assert colors[0] == colors[1] == colors[2] != colors[3]
    figure.savefig(io.BytesIO())


def test_a_point_a_setting_and_lines_of_large_and_huge_effects():
    figure = figures.effect_size_bars(EFFECTS)
    (ax,) = figure.axes
    assert [line.get_xdata()[0] for line in ax.lines[:3]] == [0, 0.8, 2.0]
    lines = [line for line in ax.lines if line.get_linestyle() == "None"]
    points = np.concatenate([line.get_xdata() for line in lines])
    assert points.tolist() == EFFECTS["d"].tolist()
    texts = [text.get_text() for text in figure.legends[0].texts]
    assert texts == ["large, 0.8", "huge, 2.0", "ECE", "ECE + TS"]


OBJECTIVES = ("nll", "nll+mmce", "focal", "focal+s_avuc-interleaved")


def summary(num_seeds=3, objectives=OBJECTIVES):
    rng = np.random.default_rng(0)
    rows = [
        run(name, seed, accuracy=0.7 + rng.random() / 10, ece=rng.random())
        for name in objectives
        for seed in range(num_seeds)
    ]
    return statistics.summarize(pd.DataFrame(rows), ["ece"])


def test_a_bar_an_objective():
    expected = summary()
    figure = figures.error_bars_by_objective(expected)
    (ax,) = figure.axes
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == [
        *("NLL", "NLL + MMCE", "Focal", "Focal + S-AvUC\n(interleaved)")
    ]
    widths = [bar.get_width() for bar in ax.patches]
    assert widths == pytest.approx(list(100 * expected.mean["ece"]))
    (bars,) = ax.collections
    for segment, text, bar, name in zip(
        bars.get_segments(), ax.texts, ax.patches, OBJECTIVES, strict=True
    ):
        look = figures.objective_style(name)
        assert to_hex(bar.get_facecolor()) == to_hex(look["markerfacecolor"])
        mean, error = expected.mean.loc[name], expected.error.loc[name]
        assert np.ptp(segment[:, 0]) == pytest.approx(200 * error["ece"])
        assert text.get_text() == (
            f" accuracy {100 * mean['accuracy']:.1f} "
            f"± {100 * error['accuracy']:.1f}%"
        )
        # The axis points down.
        assert text.get_position()[1] > bar.get_y() + bar.get_height()
    assert ax.get_xlabel() == "ECE (%)"
    figure.savefig(io.BytesIO())


PRIMARIES = ("nll", "focal", "mse", "dual_focal", "bsce_gra")
SECONDARIES = (
    *("", "s_avuc", "sb_ece", "mmce", "avuc", "avuc_gs", "sb_marginal_ece"),
    *("esd", "mdca", "dca", "mbls", "acls"),
)
EVERY = [
    f"{primary}+{secondary}".rstrip("+") + ending
    for primary in PRIMARIES
    for secondary in SECONDARIES
    for ending in ("", "-interleaved")
    if secondary or not ending
]


def test_any_two_objectives_are_told_apart():
    looks = {tuple(figures.objective_style(name).values()) for name in EVERY}
    assert len(looks) == len(EVERY)


def test_the_parts_of_an_objective_have_parts_of_the_style():
    def part(key, names):
        return [figures.objective_style(name)[key] for name in names]

    assert len(set(part("color", (f"nll+{n}" for n in SECONDARIES)))) == 12
    one, other = part("color", ("nll+mmce", "focal+mmce-interleaved"))
    assert one == other
    assert len(set(part("marker", PRIMARIES))) == 5
    one, other = part("marker", ("mse", "mse+mmce"))
    assert one == other


def test_labels_and_units():
    for objective, label in (
        ("nll", "NLL"),
        ("mse+avuc_gs", "MSE + AvUC-GS"),
        ("nll+s_avuc-interleaved", "NLL + S-AvUC (interleaved)"),
        ("my_loss+mmce", "my_loss + MMCE"),
    ):
        assert figures.objective_label(objective) == label
    for metric, label, factor in (
        ("ece", "ECE (%)", 100),
        ("ece_ts_sb_ece", "ECE + TS-SB-ECE (%)", 100),
        ("ece_dirichlet", "ECE + Dirichlet (%)", 100),
        ("nll_ts", "NLL + TS (nats)", 1),
        ("train_ece_l1", "Training ECE, l1 (%)", 100),
        ("something", "something", 1),
    ):
        assert figures.metric_label(metric) == label
        assert figures.metric_label(metric, unit=False) == label.split(" (")[0]
        assert figures.metric_factor(metric) == factor


@pytest.mark.parametrize("count", [1, 18])
def test_the_legend_is_below_and_inside_the_figure(count):
    labels = ["Focal + SB-marginal ECE (interleaved)"] * count
    figure, ax = style.new_axes(3)
    for label in labels:
        ax.plot([0, 1], [0, 1], label=label)
    figures.legend_below(ax)
    figure.canvas.draw()
    box = figure.legends[0].get_window_extent()
    assert 0 <= box.x0 and box.x1 <= figure.bbox.width
    assert 0 <= box.y0 and box.y1 < ax.get_window_extent().y0
    # The axes keep their height.
    assert ax.get_window_extent().height > 2 * figure.dpi


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


def test_a_line_an_objective_over_all_seeds():
    rows = reliability_rows("nll", 0) + reliability_rows("nll", 1)
    rows += reliability_rows("focal+sb_ece-interleaved", 2)
    figure = figures.accuracy_against_confidence(pd.DataFrame(rows))
    (ax,) = figure.axes
    diagonal, nll, focal = ax.lines
    np.testing.assert_array_equal(diagonal.get_xdata(), diagonal.get_ydata())
    for line, seeds in ((nll, (0, 1)), (focal, (2,))):
        curve = ct.metrics.reliability_curve(
            *all_together(*seeds), 15, "equal_width"
        )
        filled = curve.count >= 30
        assert not filled.all()
        np.testing.assert_allclose(line.get_xdata(), curve.confidence[filled])
        np.testing.assert_allclose(line.get_ydata(), curve.accuracy[filled])
    look = figures.objective_style("focal+sb_ece-interleaved")
    assert (focal.get_color(), focal.get_marker()) == tuple(look.values())[:2]
    assert focal.get_markerfacecolor() == "white"
    texts = [text.get_text() for text in figure.legends[0].texts]
    assert texts == ["calibrated", "NLL", "Focal + SB-ECE (interleaved)"]
    figure.savefig(io.BytesIO())


def shift_rows():
    return pd.DataFrame(
        [
            {
                "dataset": "cifar10",
                "corruption": corruption,
                "severity": severity,
                "calibrator": calibrator,
                "metric": "ece",
                "value": severity / 10
                + index / 100
                + (calibrator == "none") / 50,
            }
            for index, corruption in enumerate(("fog", "snow", "glass_blur"))
            for severity in (1, 2, 4)
            for calibrator in ("none", "ts_sb_ece")
        ]
    )


def test_a_line_a_calibrator_with_error_bars():
    means = statistics.shift_by_calibrator(shift_rows()).to_dict("records")
    figure = figures.shift_lines(pd.DataFrame(means), title="A network")
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
    figure = figures.shift_lines(pd.DataFrame(means))
    texts = [text.get_text() for text in figure.legends[0].texts]
    assert texts == ["NLL", "MSE", "NLL + TS"]
    lines = [container[0] for container in figure.axes[0].containers]
    assert lines[2].get_color() == "black" != lines[0].get_color()
