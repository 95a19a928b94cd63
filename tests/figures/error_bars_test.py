import io

import numpy as np
import pytest
from matplotlib.colors import to_hex

import caltrain_tf as ct
from tests.evaluation.rows import run

NAMES = ("nll", "focal", "nll+mmce", "focal+s_avuc-interleaved")


def summaries(num_seeds=3):
    rng = np.random.default_rng(0)
    rows = [
        run(name, seed, accuracy=0.7 + rng.random() / 10, ece=rng.random())
        for name in NAMES
        for seed in range(num_seeds)
    ]
    return ct.evaluation.summarize_results(rows, ["ece"])


def test_a_bar_an_objective_grouped_by_primary():
    expected = summaries()
    figure = ct.figures.error_bars_by_objective(expected, title="A set")
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
        color = ct.figures.objective_style(NAMES[i]).bar()["facecolor"]
        assert bar.get_facecolor()[:3] != (0, 0, 0)
        assert to_hex(bar.get_facecolor()) == to_hex(color)
    assert ax.get_xlabel() == "ECE (%)" and ax.get_title() == "A set"
    figure.savefig(io.BytesIO())


def test_error_bars_and_the_accuracy_under_the_bars():
    expected = summaries()
    (ax,) = ct.figures.error_bars_by_objective(expected).axes
    by_name = {ct.figures.objective_label(s["objective"]): s for s in expected}
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
    (ax,) = ct.figures.error_bars_by_objective(summaries(1)).axes
    assert len(ax.patches) == 4 and not ax.collections
    assert all("±" not in text.get_text() for text in ax.texts)


def test_what_was_not_measured_is_absent():
    some = summaries()
    del some[1]["mean"]["ece"]
    (ax,) = ct.figures.error_bars_by_objective(some).axes
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert "Focal" not in labels and len(ax.patches) == 3


def test_many_names_do_not_overlap():
    rows = [
        run(f"{p}+{s}{end}", 0, accuracy=0.9, ece=0.1)
        for p in ("nll", "focal", "mse")
        for s in ("mmce", "s_avuc", "sb_marginal_ece")
        for end in ("", "-interleaved")
    ]
    many = ct.evaluation.summarize_results(rows, ["ece"])
    figure = ct.figures.error_bars_by_objective(many)
    figure.canvas.draw()
    (ax,) = figure.axes
    boxes = [label.get_window_extent() for label in ax.get_yticklabels()]
    assert all(
        upper.y0 > lower.y1
        for upper, lower in zip(boxes, boxes[1:], strict=False)
    )
    assert min(box.x0 for box in boxes) >= 0


def test_bad_input_is_an_error():
    with pytest.raises(ValueError, match="`summaries` must not be empty"):
        ct.figures.error_bars_by_objective([])
    with pytest.raises(ValueError, match="metric='brier'"):
        ct.figures.error_bars_by_objective(summaries(), "brier")
    other = [s | {"setting": s["objective"]} for s in summaries()]
    with pytest.raises(ValueError, match="one setting"):
        ct.figures.error_bars_by_objective(other)
