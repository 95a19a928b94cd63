import io
import re
import urllib.parse
from xml.etree import ElementTree

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from caltrain_tf.report import drawing


def figure(points=5):
    made = Figure(figsize=(4, 3))
    FigureCanvasAgg(made)
    ax = made.subplots()
    rng = np.random.default_rng(0)
    ax.plot(rng.normal(size=points), rng.normal(size=points), "o-")
    ax.bar(range(3), range(3), hatch="//", alpha=0.5)
    ax.set_title('It\'s <a> "title"')
    return made


def test_an_svg_is_the_same_every_time_and_names_nothing_outside():
    text = drawing.svg(figure())
    assert text == drawing.svg(figure())
    ElementTree.fromstring(text)
    names = set(re.findall(r"https?://[^'\" ]+", text))
    assert names == {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }


def test_everything_that_is_referred_to_is_there():
    text = drawing.svg(figure())
    ids = set(re.findall(r" id='([^']+)'", text))
    used = set(re.findall(r"(?:href='#|url\(#)([^')]+)", text))
    assert used and used <= ids
    classes = set(re.findall(r"class='([^']+)'", text))
    assert classes == set(re.findall(r"\.(s\d+)\{", text))


def test_shortening_moves_nothing_that_can_be_seen():
    made = figure()
    plain = io.StringIO()
    made.savefig(plain, format="svg")
    pattern = r" d=[\"']M ([\d.-]+) ([\d.-]+)"
    before = np.array(re.findall(pattern, plain.getvalue()), float)
    after = np.array(re.findall(pattern, drawing.svg(made)), float)
    assert len(before) > 20
    np.testing.assert_allclose(after, before, atol=0.005)
    # Sizes of letters are factors, not places.
    scales = r"scale\([^)]*\)"
    assert re.findall(scales, drawing.svg(made)) == re.findall(
        scales, plain.getvalue()
    )


def test_the_image_is_inside():
    text = drawing.figure_html(figure(), "A <title>", "5 > 3", 7)
    source = re.search(r'src="data:image/svg\+xml,([^"]+)"', text)[1]
    assert urllib.parse.unquote(source) == drawing.svg(figure())
    assert 'alt="A &lt;title&gt;. 5 &gt; 3"' in text
    assert 'width="384" height="288"' in text
    assert "Figure 7. A &lt;title&gt;." in text


def test_too_many_parts_are_drawn_as_dots():
    text = drawing.figure_html(figure(6000), "Many", "points", 1)
    assert 'src="data:image/png;base64,' in text
    assert len(text) < len(drawing.svg(figure(6000)))
