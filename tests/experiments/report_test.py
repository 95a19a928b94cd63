import html.parser
import re
import shutil

import pandas as pd
import pytest

import caltrain_tf as ct
from caltrain_tf.experiments import collect, report
from caltrain_tf.experiments.collect import make_rows
from tests.experiments.rows import run

VOID = {"meta", "img", "br"}
SHIFTS = [
    *("ECE under shift", "Accuracy under shift", "Scaling under shift, NLL"),
]


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


def check_form(text):
    parser = Balance()
    parser.feed(text)
    parser.close()
    assert not parser.wrong and not parser.open
    assert len(parser.ids) == len(set(parser.ids))
    assert {link.removeprefix("#") for link in parser.links} <= set(parser.ids)


def write(rows, folder, **options):
    path = folder / "page.html"
    printed = report.write_report(rows, path, **options)
    return path.read_text(), printed


def captions(text):
    return re.findall(r"<figcaption><strong>(.*?)\.</str", text)


@pytest.fixture(scope="module")
def text(page):
    return page.read_text()


def test_the_headline_then_the_tables_then_figures(text):
    places = [
        text.index(mark)
        for mark in (
            # Two seeds of 600 images each.
            *('<p class="headline">', "cannot be decided: the accuracies"),
            *("<h2>digits wrn-10-1 16 epochs batch 64</h2>", "<table>"),
            *("<figure", "<details>", "<footer>"),
        )
    ]
    assert places == sorted(places)
    shown = captions(text)
    assert len(shown) == 7 and [t for t in shown if "under" in t] == SHIFTS
    assert text.count("<table>") == 7
    assert "each set of 200 images" in text


def test_the_page_is_whole_and_needs_nothing_else(text):
    check_form(text)
    footer = text[text.index("<footer>") :]
    assert f"caltrain_tf {ct.__version__}" in footer
    assert "<code>python report.py &#39;a b&#39;</code>" in footer
    assert not re.search(r"https?:|<script|@import|<link", text)
    sources = re.findall(r'src="([^"]{22})', text)
    assert len(sources) == 7 and set(sources) == {"data:image/png;base64,"}


def test_nothing_is_drawn_or_marked_that_was_not_run(rows, tmp_path):
    one = rows.results[:1]
    text, printed = write(make_rows(results=one), tmp_path)
    assert captions(text) == [
        "ECE by objective",
        "ECE by objective, after temperature scaling (TS)",
    ]
    assert "±" not in re.search(r"<tbody>.*?</tbody>", text, re.DOTALL)[0]
    assert "<td><strong>" not in text and "*" not in printed
    assert "cannot be decided: it takes two objectives" in text
    bare = one[list(one)[:7]].assign(accuracy=0.9, ece=0.1)
    text, _ = write(make_rows(results=bare), tmp_path)
    assert captions(text) == ["ECE by objective"]


def test_a_rebuild_from_the_rows_is_identical(page, tmp_path):
    rows = collect.collect(page.with_name("report_rows"))
    again = tmp_path / "again.html"
    report.write_report(rows, again, command="python report.py 'a b'")
    assert again.read_bytes() == page.read_bytes()
    for kind in ("rows", "tables"):
        before = page.with_name(f"report_{kind}")
        after = tmp_path / f"again_{kind}"
        names = sorted(path.name for path in before.iterdir())
        assert names == sorted(path.name for path in after.iterdir())
        for name in names:
            assert (before / name).read_bytes() == (after / name).read_bytes()


def test_settings_have_sections_and_names_are_escaped(rows, tmp_path):
    evil = "<script>alert(1)</script> & co"
    results = rows.results.query("seed == 0").to_dict("records")
    results += [{**row, "setting": evil} for row in results]
    text, _ = write(make_rows(results=results), tmp_path)
    assert "<script" not in text
    assert f"<h2>{html.escape(evil)}</h2>" in text
    assert 'href="#setting-2"' in text and 'id="setting-2"' in text
    check_form(text)


def result(objective, seed, accuracy, ece):
    row = run(objective, seed, accuracy=accuracy, ece=ece, hyperparameters="")
    return pd.DataFrame([row])


RESULTS = pd.concat(
    [
        *(result("nll", s, 0.9, 0.08 + s / 1000) for s in range(3)),
        *(result("nll+mmce", s, 0.895, 0.05) for s in range(3)),
        *(result("focal", s, 0.8, 0.01) for s in range(3)),
    ],
    ignore_index=True,
)


def test_the_headline_names_the_best_and_its_gain(tmp_path):
    text, _ = write(make_rows(results=RESULTS), tmp_path)
    line = " ".join(re.search(r'"headline">(.*?)</p>', text, re.S)[1].split())
    assert "<strong>NLL + MMCE</strong>, ECE 5.00 ± 0.00% at 89.50" in line
    assert "NLL alone: ECE 8.10 ± 0.06% at 90.00 ± 0.00% accuracy." in line
    # Differences of 3, 3.1 and 3.2 points: 3.1 ± 4.303 x 0.1 / sqrt(3).
    assert "Difference -3.10 points, 95% interval -3.35 to -2.85" in line
    assert "p = 0.00035, 0.00035 with Holm's correction." in line


def test_the_headline_says_what_cannot_be_decided(tmp_path):
    uncertain = RESULTS.assign(accuracy=0.4 + 0.12 * (RESULTS["seed"] == 1))
    text, printed = write(make_rows(results=uncertain), tmp_path)
    assert "Which objective is best cannot be decided: the accuracies" in text
    assert "standard errors up to 4.00%" in text
    assert "<td><strong>" not in text and "†" not in text
    assert "*" not in printed
    single = RESULTS[RESULTS["seed"] == 0]
    assert "reason" in report.headline(single)


ROWS = make_rows(results=result("nll", 0, 0.9, 0.1))


def test_an_earlier_report_is_replaced_whole(tmp_path, page):
    shutil.copytree(page.parent, tmp_path, dirs_exist_ok=True)
    output = tmp_path / "report.html"
    for kind in ("rows", "tables"):
        (tmp_path / f"report_{kind}" / "notes.md").write_text("mine")
    assert (tmp_path / "report_tables" / "shift.md").exists()
    report.write_report(ROWS, output)
    # No table of the earlier one is left, and what is not ours is.
    names = {path.stem for path in (tmp_path / "report_tables").iterdir()}
    assert names == {"results", "hyperparameters", "notes"}
    again = collect.collect(tmp_path / "report_rows")
    assert len(again.results) == 1 and again.shift.empty


def test_what_no_report_has_written_is_not_replaced(tmp_path):
    mine = tmp_path / "thesis.html"
    mine.write_text("<html>my own</html>")
    with pytest.raises(ValueError, match="--output.*thesis.html"):
        report.write_report(ROWS, mine)
    assert mine.read_text() == "<html>my own</html>"
