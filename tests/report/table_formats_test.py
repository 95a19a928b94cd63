import csv
import io

import pytest

from caltrain_tf.report import table_formats
from caltrain_tf.report import tables
from caltrain_tf.report.tables import Column
from caltrain_tf.report.tables import Estimate

NAME = r"a_b & <c> | 50% $x^2$ #{1} ~\d"
TABLE = tables.Table(
    (
        Column("objective", "Objective"),
        Column("seeds", "Seeds"),
        Column("ece", "ECE (%)", percent=True),
        Column("p", "p", digits=4),
    ),
    [
        {"objective": NAME, "seeds": 3, "ece": Estimate(0.0123456, 0.001)},
        {"objective": "nll", "seeds": 1, "ece": Estimate(-0.5), "p": 0.25},
    ],
    best=frozenset([(0, "ece")]),
    aside=frozenset([1]),
)


def test_csv_has_the_numbers_as_they_are():
    text = table_formats.to_csv({"s, t": TABLE})
    first, second = csv.DictReader(io.StringIO(text))
    assert first["setting"] == "s, t" and first["objective"] == NAME
    assert float(first["ece"]) == 0.0123456
    assert float(first["ece_error"]) == 0.001
    assert (first["p"], first["best"]) == ("", "ece")
    assert (second["ece"], second["ece_error"]) == ("-0.5", "")
    assert (second["p"], second["best"]) == ("0.25", "")
    assert (first["too_inaccurate"], second["too_inaccurate"]) == (
        "False",
        "True",
    )


def test_csv_keeps_an_error_beside_its_mean():
    rows = [{"objective": "a"}, {"objective": "b", "ece": Estimate(0.5, 0.1)}]
    text = table_formats.to_csv({"s": tables.Table(TABLE.columns[::2], rows)})
    assert text == "setting,objective,ece,ece_error\ns,a,,\ns,b,0.5,0.1\n"


def test_markdown_escapes_and_aligns():
    text = table_formats.to_markdown({"s_1": TABLE}, "Title", "A *note*.")
    lines = text.splitlines()
    assert lines[0] == "# Title" and lines[2] == r"## s\_1"
    assert lines[4] == "| Objective | Seeds | ECE (%) | p |"
    assert lines[5] == "| --- | ---: | ---: | ---: |"
    assert lines[6] == (
        r"| a\_b & \<c\> \| 50% $x^2$ #{1} ~\\d | 3 | **1.23 ± 0.10** |  |"
    )
    assert lines[7] == "| nll † | 1 | −50.00 | 0.2500 |"
    assert lines[9] == r"A \*note\*."


def test_latex_escapes_and_marks():
    text = table_formats.to_latex({"s_1": TABLE}, "Title", "5% of it.")
    assert r"\caption{Title, s\_1. 5\% of it.}" in text
    assert r"\begin{tabular}{lrrr}" in text
    assert (
        r"a\_b \& <c> | 50\% \$x\textasciicircum{}2\$ \#\{1\} "
        r"\textasciitilde{}\textbackslash{}d & 3 & \textbf{1.23 $\pm$ 0.10} & "
        r" \\"
    ) in text
    assert r"nll $\dagger$ & 1 & $-$50.00 & 0.2500 \\" in text
    assert text.index(r"\toprule") < text.index(r"\midrule")
    assert text.index(r"\midrule") < text.index(r"\bottomrule")
    # Everything else is ASCII, which any LaTeX reads.
    assert text.isascii()


def test_html_escapes_and_marks():
    text = table_formats.to_html(TABLE, 'A "caption" <b>')
    assert "a_b &amp; &lt;c&gt; | 50%" in text
    assert 'aria-label="A &quot;caption&quot; &lt;b&gt;"' in text
    assert "<td><strong>1.23 ± 0.10</strong></td>" in text
    assert '<tr class="aside"><th scope="row">nll †</th>' in text


def test_the_terminal_gets_columns():
    head, first, second = tables.to_text(TABLE).splitlines()
    assert head.split() == ["Objective", "Seeds", "ECE", "(%)", "p"]
    assert first.endswith("1.23 ± 0.10*")
    assert second.rindex("0.2500") + 6 == len(second) == len(head)


@pytest.mark.parametrize(
    "value, text",
    [
        (None, ""),
        (2, "2"),
        ("word", "word"),
        (float("nan"), "–"),
        (0.5, "50.00"),
        (Estimate(0.5, 0.01), "50.00 ± 1.00"),
    ],
)
def test_cells(value, text):
    assert tables.cell_text(Column("x", "X", percent=True), value) == text


def test_objectives_have_the_names_of_the_figures():
    column = Column("objective", "Objective", objective=True)
    assert tables.cell_text(column, "focal+sb_ece") == "Focal + SB-ECE"
