import html.parser
import re
import urllib.parse

import pytest

import caltrain_tf as ct
from caltrain_tf.report import sections
from caltrain_tf.report import table_files
from caltrain_tf.report.page import report_page
from caltrain_tf.report.rows import Rows

VOID = {"meta", "img", "br"}


class Balance(html.parser.HTMLParser):
    """Collects what is wrong with the nesting of tags, and ids."""

    def __init__(self):
        super().__init__()
        self.open, self.wrong, self.ids, self.links = [], [], [], []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        self.ids += [attrs["id"]] if "id" in attrs else []
        self.links += [attrs["href"]] if "href" in attrs else []
        if tag == "img" and not attrs.get("alt"):
            self.wrong.append("an image without a text")

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def build(rows):
    return report_page(rows, table_files.build_tables(rows))


def captions(text):
    return re.findall(r"<figcaption><strong>Figure \d+\. (.*?)\.</str", text)


def titles(kinds=sections.OF_A_SETTING):
    return [html.escape(kind.title) for kind in kinds]


@pytest.fixture(scope="module")
def text(page):
    return page.read_text()


def test_every_figure_that_the_data_allow(text):
    assert captions(text) == titles()
    for kind in table_files.KINDS:
        shown = f"<caption>{html.escape(kind.title)}</caption>" in text
        assert shown == (kind.name != "dirichlet")
    # The one thing that was not run is named, with its command.
    listed = re.findall(r"<li>(.*?) \(digits.*?<code>(.*?)</code>", text)
    assert listed == [
        (
            "Dirichlet calibration",
            "python baselines/report.py RUNS --dirichlet",
        )
    ]


def test_nothing_is_drawn_that_was_not_run(rows):
    one = [row for row in rows.results if row["seed"] == 0][:1]
    text = build(Rows(one, [], [], []))
    assert captions(text) == [
        "ECE against average uncertainty",
        "ECE by objective",
        "ECE by objective, after temperature scaling",
    ]
    not_shown = text[text.index('id="not-shown"') :]
    for title in set(titles()) - set(captions(text)):
        assert f"<li>{title} (digits" in not_shown
    assert "±" not in re.search(r"<tbody>.*?</tbody>", text, re.DOTALL)[0]
    few = {key: one[0][key] for key in list(one[0])[:7]}
    bare = build(Rows([{**few, "accuracy": 0.9, "ece": 0.1}], [], [], []))
    assert captions(bare) == ["ECE by objective"]


def test_the_page_is_well_formed(text):
    parser = Balance()
    parser.feed(text)
    parser.close()
    assert not parser.wrong and not parser.open
    assert len(parser.ids) == len(set(parser.ids))
    assert {link.removeprefix("#") for link in parser.links} <= set(parser.ids)


def test_nothing_is_loaded_from_elsewhere(text):
    plain = urllib.parse.unquote(text)
    assert set(re.findall(r"https?:[^'\" )]+", plain)) == {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert "<script" not in text and "@import" not in text
    sources = re.findall(r'src="([^"]{10})', text)
    assert sources and set(sources) == {"data:image"}


def test_the_numbers_are_those_of_the_rows(text, rows):
    values = [row["ece"] for row in rows.results if row["objective"] == "nll"]
    mean = sum(values) / 2
    error = abs(values[0] - values[1]) / 2
    assert f"{100 * mean:.2f} ± {100 * error:.2f}" in text


def test_a_rebuild_from_the_rows_is_identical(page, tmp_path):
    rows = ct.report.collect(page.with_name("report_rows"))
    again = tmp_path / "again.html"
    ct.report.write_report(rows, again)
    assert again.read_bytes() == page.read_bytes()
    for kind in ("rows", "tables"):
        before = page.with_name(f"report_{kind}")
        after = tmp_path / f"again_{kind}"
        names = sorted(path.name for path in before.iterdir())
        assert names == sorted(path.name for path in after.iterdir())
        for name in names:
            assert (before / name).read_bytes() == (after / name).read_bytes()


def test_settings_have_sections_and_names_are_escaped(rows):
    evil = "<script>alert(1)</script> & co"
    results = [row for row in rows.results if row["seed"] == 0]
    results += [{**row, "setting": evil} for row in results]
    left_out = [{"folder": "a<b>", "part": "run", "reason": "no 'x' & y"}]
    text = build(Rows(results, [], [], left_out))
    assert "<script" not in text
    assert f"<h2>{html.escape(evil)}</h2>" in text
    assert "<code>a&lt;b&gt;</code>, run: no &#x27;x&#x27; &amp; y" in text
    assert 'id="setting-1"' in text and 'id="setting-2"' in text
    parser = Balance()
    parser.feed(text)
    assert not parser.wrong and not parser.open


def test_shift_is_over_the_sets_that_all_runs_have(rows):
    fewer = [
        row
        for row in rows.shift
        if row["seed"] == 0 or row["corruption"] != "fog"
    ]
    draw = next(
        kind.draw
        for kind in sections.OF_A_SETTING
        if kind.title == "ECE under shift"
    )
    _, caption = draw(rows._replace(shift=fewer))
    assert "over 2 corruptions" in caption and "2 seeds" in caption
    _, caption = draw(rows)
    assert "over 3 corruptions" in caption
    clean = [row for row in rows.shift if row["severity"] == 0]
    assert draw(rows._replace(shift=clean)) is None
