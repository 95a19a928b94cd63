import io

import numpy as np
import pytest
from matplotlib.colors import to_hex

import caltrain_tf as ct


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
    figure = ct.figures.effect_size_bars(EFFECTS, title="Effects")
    (ax,) = figure.axes
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels == ["S-AvUC", "MMCE", "S-AvUC\n(interleaved)"]
    assert ax.yaxis_inverted()
    means = {
        (m["secondary"], m["interleaved"], m["metric"]): m["d"]
        for m in ct.evaluation.mean_effect_sizes(EFFECTS)
    }
    widths = [bar.get_width() for bar in ax.patches]
    assert widths == pytest.approx(list(means.values()))
    # In the group of its secondary loss; ECE above ECE after scaling.
    middles = [bar.get_y() + bar.get_height() / 2 for bar in ax.patches]
    assert [round(middle) for middle in middles] == [1, 0, 2, 1]
    assert middles[0] < middles[3]
    for bar, name in zip(ax.patches, ("mmce", "s_avuc"), strict=False):
        color = ct.figures.objective_style(f"nll+{name}").color
        assert to_hex(bar.get_facecolor()).upper() == color
    assert ax.get_title() == "Effects"
    figure.savefig(io.BytesIO())


def test_a_mark_a_setting_and_lines_of_large_and_huge_effects():
    (ax,) = ct.figures.effect_size_bars(EFFECTS).axes
    lines = [line for line in ax.lines if line.get_linestyle() == "--"]
    assert [line.get_xdata()[0] for line in lines] == [0.8, 2.0]
    assert [t.get_text() for t in ax.texts] == ["large 0.8", "huge 2.0"]
    marks = [
        (line.get_xdata()[0], line.get_marker())
        for line in ax.lines
        if line.get_linestyle() == "None"
    ]
    expected = [
        (row["d"], ct.figures.objective_style(row["primary"]).marker)
        for row in EFFECTS
        if not np.isnan(row["d"])
    ]
    assert sorted(marks) == sorted(expected)


def test_the_legend_has_metrics_and_primary_losses():
    figure = ct.figures.effect_size_bars(EFFECTS)
    texts = [text.get_text() for text in figure.legends[0].texts]
    assert texts == ["ECE", "ECE + TS", "NLL", "Focal"]


def test_bad_input_is_an_error():
    for effects in ([], [effect("nll+mmce", float("nan"))]):
        with pytest.raises(ValueError, match="`effects` must hold.*Received"):
            ct.figures.effect_size_bars(effects)
