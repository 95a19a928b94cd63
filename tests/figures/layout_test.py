import pytest

from caltrain_tf.figures import layout


def drawn(labels):
    figure, ax = layout.new_axes(layout.WIDTH, 3)
    for label in labels:
        ax.plot([0, 1], [0, 1], label=label)
    layout.legend_below(ax)
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


def test_rows_are_of_one_setting():
    layout.check_rows("rows", [{"setting": "a"}, {"setting": "a"}])
    layout.check_rows("rows", [{}])
    with pytest.raises(ValueError, match="`means` must not be empty"):
        layout.check_rows("means", [])
    with pytest.raises(ValueError, match=r"one setting.*\['a', 'b'\]"):
        layout.check_rows("rows", [{"setting": "a"}, {"setting": "b"}])
