"""The committed rows of the CIFAR-10 studies, and what is said of them."""

import csv
import pathlib
import re

import pytest

import caltrain_tf as ct
from caltrain_tf.report.table_files import build_tables
from caltrain_tf.report.table_files import table_texts

CIFAR = pathlib.Path(__file__).parents[2] / "baselines" / "cifar"
DOCS = CIFAR.parents[1] / "docs"
PAGE = (DOCS / "results.md").read_text()
TABLES = sorted((CIFAR / "results" / "tables").glob("*.md"))
OBJECTIVES = {
    *("nll", "focal", "mse", "nll+mmce", "focal+sb_ece", "focal+s_avuc"),
    "nll+s_avuc-interleaved",
}
VARIED = sorted((CIFAR / "results" / "trials" / "memorised").glob("*.csv"))


@pytest.fixture(scope="module")
def rows():
    return ct.report.collect(CIFAR / "results")


@pytest.fixture(scope="module")
def texts(rows):
    return table_texts(build_tables(rows))


def test_the_committed_tables_are_those_of_the_rows(texts):
    markdown = {name for name in texts if name.endswith(".md")}
    assert {path.name for path in TABLES} == markdown
    for path in TABLES:
        assert path.read_text() == texts[path.name]


def test_the_page_of_results_includes_the_tables():
    included = re.findall(
        r"^```\{include\} (\S+)\n:start-after: \"(.*)\"$", PAGE, re.M
    )
    assert len(included) == 4
    for path, heading in included:
        assert heading.replace(r"\\", "\\") in (DOCS / path).read_text()


@pytest.mark.parametrize("path", VARIED, ids=lambda path: path.stem)
def test_the_trials_of_the_page_are_those_that_ran(path):
    with path.open() as file:
        trials = list(csv.DictReader(file))
    assert len(trials) > 1
    for trial in trials:
        numbers = (100 * float(trial[key]) for key in ("accuracy", "ece"))
        assert " | ".join(f"{number:.2f}" for number in numbers) in PAGE


def test_the_varied_trials_are_there():
    assert len(VARIED) == 4


def test_objectives_of_a_setting_have_the_same_seeds(rows):
    settings = {}
    for row in rows.results:
        objectives = settings.setdefault(row["setting"], {})
        objectives.setdefault(row["objective"], set()).add(row["seed"])
    assert len(settings) == 3
    for objectives in settings.values():
        assert OBJECTIVES <= set(objectives)
        assert set(map(frozenset, objectives.values())) == {frozenset(range(3))}


def test_the_page_is_made_of_the_rows_again(rows, tmp_path):
    path = tmp_path / "report.html"
    # Of one regime; the others have the same columns.
    setting = rows.results[0]["setting"]
    some = [
        [row for row in part if row.get("setting") == setting] for part in rows
    ]
    ct.report.write_report(type(rows)(*some), path)
    page = path.read_text()
    assert "Pareto" in page and "under shift" in page
    assert not rows.left_out
