"""The committed rows of the CIFAR-10 studies, and what is said of them."""

import csv
import pathlib
import re

import pytest

from caltrain_tf.experiments import collect, report, tables

CIFAR = pathlib.Path(__file__).parents[2] / "baselines" / "cifar"
DOCS = CIFAR.parents[1] / "docs"
PAGE = (DOCS / "results.md").read_text()
TABLES = sorted((CIFAR / "results" / "tables").glob("*.md"))
OBJECTIVES = {
    *("nll", "focal", "mse", "nll+mmce", "focal+sb_ece", "focal+s_avuc"),
    "nll+s_avuc-interleaved",
}
# Of the years since the paper.
LATER = {
    *("dual_focal", "bsce_gra", "focal+esd", "focal+mdca", "focal+dca"),
    *("nll+mbls", "nll+acls"),
}
VARIED = sorted((CIFAR / "results" / "trials" / "memorised").glob("*.csv"))


@pytest.fixture(scope="module")
def rows():
    return collect.collect(CIFAR / "results")


@pytest.fixture(scope="module")
def texts(rows):
    made = {}
    for setting in rows.results["setting"].unique():
        built = tables.build_tables(collect.of_setting(rows, setting))
        for name, table in built.items():
            made.setdefault(f"{name}.md", {})[setting] = table
    return {name: tables.to_markdown(parts) for name, parts in made.items()}


def cells(text):
    """The rows of Markdown tables, without what only marks or aligns them."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    lines = [line.replace("**", "").replace(" †", "") for line in lines]
    table = [tuple(map(str.strip, line.split("|"))) for line in lines]
    return [row for row in table if set("".join(row)) - set(":-")]


def test_the_committed_tables_are_those_of_the_rows(texts):
    assert {path.name for path in TABLES} == set(texts)
    for path in TABLES:
        assert path.read_text() == texts[path.name]


def test_the_page_of_results_includes_the_tables():
    included = re.findall(
        r"^```\{include\} (\S+)\n:start-after: \"(.*)\"$", PAGE, re.M
    )
    assert len(included) == 4
    for path, heading in included:
        assert heading.replace(r"\\", "\\") in (DOCS / path).read_text()


def test_the_table_of_the_readme_is_of_the_rows(texts):
    readme = (CIFAR.parents[1] / "README.md").read_text()
    shown = [row for row in cells(readme) if " ± " in "".join(row)]
    assert set(shown) <= set(cells(texts["results.md"]))


def test_the_number_of_images_is_that_of_the_rows(rows):
    assert set(rows.results["test_examples"]) == {10_000}
    counts = rows.reliability.groupby(["setting", "objective", "seed"])["count"]
    assert set(counts.sum()) == {3 * 10_000}
    # Accuracies under shift are shares of 500.
    assert set(rows.results["shift_examples"]) == {500}
    accuracy = rows.shift.query("metric == 'accuracy'")["value"]
    assert (500 * accuracy - (500 * accuracy).round()).abs().max() < 1e-9


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
    settings = dict(list(rows.results.groupby("setting")))
    assert len(settings) == 3
    for runs in settings.values():
        assert OBJECTIVES <= set(runs["objective"])
        for _, seeds in runs.groupby("objective")["seed"]:
            assert set(seeds) == {0, 1, 2}
    halfway = rows.results["setting"].str.contains("20 epochs")
    assert set(rows.results["objective"][halfway]) == OBJECTIVES | LATER


def test_the_page_is_made_of_the_rows_again(rows, tmp_path):
    path = tmp_path / "report.html"
    # Of one regime; the others have the same columns.
    report.write_report(
        collect.of_setting(rows, rows.results["setting"].iloc[0]), path
    )
    page = path.read_text()
    assert "Effect sizes" in page and "under shift" in page
    assert rows.left_out.empty
