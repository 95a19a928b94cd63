import itertools

import numpy as np
import pytest

from caltrain_tf.experiments import figures
from caltrain_tf.figures import style

PRIMARIES = ("nll", "focal", "mse", "dual_focal", "bsce_gra")
SECONDARIES = (
    *("", "s_avuc", "sb_ece", "mmce", "avuc", "avuc_gs", "sb_marginal_ece"),
    *("esd", "mdca", "dca", "mbls", "acls"),
)
OBJECTIVES = [
    f"{primary}+{secondary}".rstrip("+") + ending
    for primary in PRIMARIES
    for secondary in SECONDARIES
    for ending in ("", "-interleaved")
    if secondary or not ending
]
# Machado, Oliveira and Fernandes, "A physiologically-based model for simulation
# of color vision deficiency", 2009: on linear RGB, at full severity.
VISION = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritanopia": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
# sRGB to XYZ, D65.
TO_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)


def lab(color, vision):
    """CIELAB coordinates of a colour such as "#0072B2", as someone sees it."""
    rgb = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(
        rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4
    )
    seen = np.clip(VISION[vision] @ linear, 0, 1)
    xyz = TO_XYZ @ seen / TO_XYZ.sum(axis=1)
    f = np.where(
        xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29
    )
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def distance(first, second, vision):
    return np.linalg.norm(lab(first, vision) - lab(second, vision))


def test_the_simulation_confuses_red_and_green():
    red, green = "#C00000", "#00803A"
    assert distance(red, green, "normal") > 80
    assert distance(red, green, "deuteranopia") < 40
    assert lab("#FFFFFF", "normal") == pytest.approx([100, 0, 0], abs=0.01)


@pytest.mark.parametrize("vision", VISION)
def test_any_two_objectives_are_told_apart(vision):
    objectives = [*OBJECTIVES, "nll+a_new_loss", "other+mmce"]
    for pair in itertools.combinations(objectives, 2):
        first, second = map(figures.objective_style, pair)
        by_shape = (first[1], first[-1]) != (second[1], second[-1])
        # About 2 can just be seen; points are small.
        apart = distance(first[0], second[0], vision) > 15
        assert apart or by_shape, pair
        assert distance(first[0], "#FFFFFF", vision) > 15


def test_the_parts_of_an_objective_have_parts_of_the_style():
    style = figures.objective_style
    assert len({style(f"nll+{name}")[0] for name in SECONDARIES}) == 12
    assert style("nll+mmce")[0] == style("focal+mmce-interleaved")[0]
    for part in range(4):
        assert len({style(name)[part] for name in PRIMARIES}) == 5
    assert style("mse")[1:] == style("mse+mmce")[1:]
    assert style("nll+mmce")[-1] and not style("nll+mmce-interleaved")[-1]


def test_unknown_names_are_the_same_in_every_process():
    style = figures.objective_style("my_loss+my_secondary")
    # Fixed here, since the hash of text would differ between processes.
    assert style[:2] == ("#B0A060", "h")
    assert style[0] not in {figures.objective_style(o)[0] for o in OBJECTIVES}


@pytest.mark.parametrize(
    "objective, label",
    [
        ("nll", "NLL"),
        ("focal+sb_ece", "Focal + SB-ECE"),
        ("mse+avuc_gs", "MSE + AvUC-GS"),
        ("nll+s_avuc-interleaved", "NLL + S-AvUC (interleaved)"),
        ("dual_focal+mdca", "Dual focal + MDCA"),
        ("bsce_gra+esd", "BSCE-GRA + ESD"),
        ("nll+mbls", "NLL + MbLS"),
        ("nll+acls", "NLL + ACLS"),
        ("focal+dca", "Focal + DCA"),
        ("my_loss+mmce", "my_loss + MMCE"),
    ],
)
def test_objectives(objective, label):
    assert figures.objective_label(objective) == label


@pytest.mark.parametrize(
    "metric, label, factor",
    [
        ("ece", "ECE (%)", 100),
        ("ece_ts", "ECE + TS (%)", 100),
        ("ece_ts_sb_ece", "ECE + TS-SB-ECE (%)", 100),
        ("ece_dirichlet", "ECE + Dirichlet (%)", 100),
        ("mean_sweep_ce_ts", "Mean-sweep CE + TS (%)", 100),
        ("nll_ts", "NLL + TS (nats)", 1),
        ("temperature_ts", "Temperature + TS", 1),
        ("average_uncertainty", "Mean entropy (nats)", 1),
        ("train_ece_l1", "Training ECE, l1 (%)", 100),
        ("something", "something", 1),
    ],
)
def test_metrics(metric, label, factor):
    assert figures.metric_label(metric) == label
    short = figures.metric_label(metric, unit=False)
    assert short == label.split(" (")[0]
    assert figures.metric_factor(metric) == factor


def test_calibrators():
    names = ("none", "ts", "ts_sb_ece", "dirichlet", "ets", "vector_scaling")
    assert [figures.calibrator_label(name) for name in names] == [
        *("no scaling", "TS", "TS-SB-ECE", "Dirichlet"),
        *("ETS", "vector scaling"),
    ]


def drawn(labels):
    figure, ax = style.new_axes(3)
    for label in labels:
        ax.plot([0, 1], [0, 1], label=label)
    figures.legend_below(ax)
    figure.canvas.draw()
    return figure, ax


@pytest.mark.parametrize(
    "labels",
    [
        ["NLL"],
        ["NLL + S-AvUC (interleaved)"] * 18,
        ["Focal + SB-marginal ECE (interleaved)"] * 4,
    ],
)
def test_the_legend_is_below_and_inside_the_figure(labels):
    figure, ax = drawn(labels)
    box = figure.legends[0].get_window_extent()
    assert 0 <= box.x0 and box.x1 <= figure.bbox.width
    assert 0 <= box.y0 and box.y1 < ax.get_window_extent().y0
    # The axes keep their height.
    assert ax.get_window_extent().height > 2 * figure.dpi
    assert [text.get_text() for text in figure.legends[0].texts] == labels
