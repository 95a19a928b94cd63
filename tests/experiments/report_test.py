import html.parser
import re

import pytest

import caltrain_tf as ct
from caltrain_tf.experiments import collect, report
from caltrain_tf.experiments.collect import make_rows
from caltrain_tf.experiments.findings import findings
from tests.experiments.rows import run

VOID = {"meta", "img", "br"}
SHIFTS = ["ECE under shift", "ECE under shift, after temperature scaling (TS)"]
SHIFTS += ["ECE under shift, with TS-SB-ECE", "Accuracy under shift"]


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
    printed, _ = report.write_report(rows, path, **options)
    return path.read_text(), printed


def captions(text):
    return re.findall(r"<figcaption><strong>Figure \d+\. (.*?)\.</str", text)


@pytest.fixture(scope="module")
def text(page):
    return page.read_text()


def test_what_was_found_then_the_table_then_figures(text):
    places = [
        text.index(mark)
        for mark in (
            *("What was found", "<dt>Best calibrated</dt>"),
            *("<dt>Against the primary loss alone</dt>", "<dt>Post-hoc"),
            *("<dt>Under shift</dt>", "<h2>WRN-10-1 on handwritten digits"),
            *("<code>digits wrn-10-1 16 epochs batch 64</code>", "<table>"),
            *("<figure", "<details>", "<footer>"),
        )
    ]
    assert places == sorted(places)
    shown = captions(text)
    assert len(shown) == 14 and [t for t in shown if "under" in t] == SHIFTS
    assert text.count("<table>") == 8
    # The one thing that was not run is named, with its command.
    listed = re.findall(r"<li>(.*?): needs.*?<code>(.*?)</code>", text)
    command = "python baselines/report.py RUNS --dirichlet"
    assert listed == [("Dirichlet calibration", command)]
    assert "200 images" in text


def test_the_footer_has_date_version_and_command(text):
    footer = text[text.index("<footer>") :]
    assert "1970-01-02" in footer and f"caltrain_tf {ct.__version__}" in footer
    assert "<code>python report.py &#39;a b&#39;</code>" in footer


def test_the_page_is_whole_and_needs_nothing_else(text):
    check_form(text)
    assert not re.search(r"https?:|<script|@import|<link", text)
    sources = re.findall(r'src="([^"]{22})', text)
    assert len(sources) == 14 and set(sources) == {"data:image/png;base64,"}


def test_the_numbers_are_those_of_the_rows(text, rows):
    first, second = rows.results.query("objective == 'nll'")["ece"]
    mean, error = (first + second) / 2, abs(first - second) / 2
    assert f"{100 * mean:.2f} ± {100 * error:.2f}" in text


def test_nothing_is_drawn_or_marked_that_was_not_run(rows, tmp_path):
    one = rows.results[:1]
    text, printed = write(make_rows(one), tmp_path)
    assert captions(text) == [
        "ECE by objective",
        "ECE by objective, after temperature scaling (TS)",
        "ECE against average uncertainty",
    ]
    not_shown = text[text.index('id="not-shown"') :]
    for title in ("Reliability", "ECE under shift", "Accuracy-ECE trade-off"):
        assert f"<li>{title}: needs" in not_shown
    assert "±" not in re.search(r"<tbody>.*?</tbody>", text, re.DOTALL)[0]
    assert "<td><strong>" not in text and "*" not in printed
    assert "no other objective was trained" in text
    assert "one run of each objective" in text
    bare = one[list(one)[:7]].assign(accuracy=0.9, ece=0.1)
    assert captions(write(make_rows(bare), tmp_path)[0]) == ["ECE by objective"]


def test_a_rebuild_from_the_rows_is_identical(page, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
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
    left_out = [{"folder": "a<b>", "part": "run", "reason": "no 'x' & y"}]
    text, _ = write(make_rows(results, left_out=left_out), tmp_path)
    assert "<script" not in text
    assert f"<h2>{html.escape(evil)}</h2>" in text
    assert "<code>a&lt;b&gt;</code>, run: no &#39;x&#39; &amp; y" in text
    assert 'href="#setting-2"' in text
    check_form(text)


def found(results, shift=()):
    rows = make_rows(results, shift=shift)
    return dict(findings(rows.results, rows.shift))


def result(objective, seed, accuracy, ece, ece_ts):
    values = {"accuracy": accuracy, "ece": ece, "ece_ts": ece_ts}
    return run(objective, seed, **values)


RESULTS = [
    *(result("nll", s, 0.9, 0.08 + s / 1000, 0.03) for s in range(3)),
    *(result("nll+mmce", s, 0.895, 0.05, 0.04) for s in range(3)),
    *(result("focal", s, 0.8, 0.01, 0.01) for s in range(3)),
]


def test_findings_name_the_best_its_gain_and_what_scaling_adds():
    texts = found(RESULTS)
    best = texts["Best calibrated"]
    assert best.startswith("NLL + MMCE, ECE 5.00% at 89.50% accuracy: the low")
    assert "2 of 3 objectives" in best and "NLL (90.00%)" in best
    assert "Focal has 1.00%, but gives up 10.00 points" in best
    # Differences of 3, 3.1 and 3.2 points: 3.1 ± 4.303 x 0.1 / sqrt(3).
    gain = texts["Against the primary loss alone"].replace("\xa0", " ")
    assert "3.10 points less ECE than NLL alone (8.10%)" in gain
    assert "95% interval 2.85 to 3.35, p = 0.00035 (over 3 seeds)" in gain
    scaling = texts["Post-hoc scaling"]
    assert "5.00% without, 4.00% with TS" in scaling
    assert "lowest ECE with scaling is 3.00%, of NLL with TS" in scaling
    assert texts["Under shift"].startswith("Not measured.")


def test_findings_where_no_secondary_loss_helps_or_was_run():
    worse = [
        {**row, "ece": row["ece"] + 0.05 * (row["secondary"] == "mmce")}
        for row in RESULTS
    ]
    gain = found(worse)["Against the primary loss alone"]
    assert gain.startswith("NLL is a primary loss alone. Nearest to it")
    assert "NLL + MMCE has 1.90 points more ECE than NLL alone" in gain
    assert "95% interval 1.65 to 2.15" in gain
    alone = found(RESULTS[:3])
    assert "no other objective" in alone["Best calibrated"]
    assert "No secondary" in alone["Against the primary loss alone"]
    only = found(RESULTS[3:6])["Against the primary loss alone"]
    assert only == "Not known: NLL alone was not run with a common seed."


def test_findings_of_single_runs_promise_nothing():
    texts = found([RESULTS[0], RESULTS[3]])
    assert "single run" in texts["Best calibrated"]
    gain = texts["Against the primary loss alone"]
    assert "in one run each: there is no interval" in gain and "p =" not in gain


def test_findings_under_shift_are_of_the_same_images():
    results = [{**row, "shift_examples": 500} for row in RESULTS]
    shift = [
        {
            **{key: row[key] for key in ("setting", "objective", "seed")},
            **{"dataset": "d", "corruption": corruption, "severity": severity},
            **{"calibrator": calibrator, "metric": "ece"},
            "value": row["ece"] + 0.1 * severity - 0.01 * (calibrator == "ts"),
        }
        for row in results
        for corruption, severity in (("none", 0), ("fog", 1), ("fog", 5))
        for calibrator in ("none", "ts")
    ]
    assert found(results, shift)["Under shift"] == (
        "From clean images to severity 5 (sets of 500 images), the ECE without "
        "scaling goes from 5.00% to 55.00% for NLL + MMCE and from 8.10% to "
        "58.10% for NLL alone. At severity 5, the lowest is 54.00%, of NLL + "
        "MMCE with TS."
    )


ROWS = make_rows([run("nll", 0, accuracy=0.9, ece=0.1)])


def test_everything_is_beside_the_page(tmp_path):
    output = tmp_path / "deep" / "my.report.html"
    _, paths = report.write_report(ROWS, output)
    assert paths[-1] == str(output)
    files = {p.name for p in (tmp_path / "deep").rglob("*.*")}
    assert {"results.csv", "results.md", "results.tex"} <= files
    assert (tmp_path / "deep" / "my.report_rows" / "results.csv").exists()
    assert not [name for name in files if name.endswith(".tmp")]


def test_an_earlier_report_is_replaced_whole(tmp_path, rows):
    output = tmp_path / "report.html"
    left_out = [{"folder": "a", "part": "run", "reason": "b"}]
    report.write_report(make_rows(ROWS.results, left_out=left_out), output)
    folder = tmp_path / "report_rows"
    (folder / "notes.csv").write_text("mine")
    report.write_report(ROWS, output)
    # No rows of the earlier one are left, and what is not ours is.
    names = {path.name for path in folder.iterdir()}
    assert names == {"results.csv", "notes.csv"}


def test_other_files_are_kept_unless_asked(tmp_path):
    output = tmp_path / "report.html"
    output.write_text("<html>mine</html>")
    with pytest.raises(ValueError, match="earlier report.*report.html"):
        report.write_report(ROWS, output)
    assert output.read_text() == "<html>mine</html>"
    assert not (tmp_path / "report_rows").exists()
    report.write_report(ROWS, output, overwrite=True)
    # The same rows may be there without a page, others may not.
    output.unlink()
    report.write_report(ROWS, output)
    output.unlink()
    other = tmp_path / "report_rows" / "left_out.csv"
    other.write_text("mine")
    with pytest.raises(ValueError, match="earlier report.*left_out.csv"):
        report.write_report(ROWS, output)
    assert other.read_text() == "mine" and not output.exists()
    with pytest.raises(ValueError, match="must be a file.*folder"):
        report.write_report(ROWS, tmp_path)
