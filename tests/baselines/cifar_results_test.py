"""The committed rows of the CIFAR-10 studies, and what is said of them."""

import pathlib

import pytest

import caltrain_tf as ct
from caltrain_tf.report.table_files import build_tables
from caltrain_tf.report.table_files import table_texts

CIFAR = pathlib.Path(__file__).parents[2] / "baselines" / "cifar"


@pytest.fixture(scope="module")
def rows():
    return ct.report.collect(CIFAR / "results")


@pytest.mark.parametrize("name", ["results", "hyperparameters"])
def test_the_tables_of_the_readme_are_those_of_the_rows(rows, name):
    text = table_texts(build_tables(rows))[f"{name}.md"]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) > 10
    readme = (CIFAR / "README.md").read_text().splitlines()
    assert [line for line in lines if line not in readme] == []


def test_objectives_of_a_setting_have_the_same_seeds(rows):
    settings = {}
    for row in rows.results:
        objectives = settings.setdefault(row["setting"], {})
        objectives.setdefault(row["objective"], set()).add(row["seed"])
    assert len(settings) == 2
    for objectives in settings.values():
        seeds = list(objectives.values())
        assert len(seeds) > 3 and len(seeds[0]) > 1
        assert seeds == [seeds[0]] * len(seeds)


def test_the_page_is_made_of_the_rows_again(rows, tmp_path):
    path = tmp_path / "report.html"
    ct.report.write_report(rows, path)
    page = path.read_text()
    assert "Pareto" in page and "under shift" in page
    assert not rows.left_out
