"""The committed rows of the CIFAR-10 studies, and what is said of them."""

import pathlib
import re

import pytest

from caltrain_tf.experiments import collect, config, report, tables

CIFAR = pathlib.Path(__file__).parents[2] / "baselines" / "cifar"
# Small Wide ResNets, and heads on embeddings.
STUDIES = {name: CIFAR / name for name in ("results", "heads")}
DOCS = CIFAR.parents[1] / "docs"
PAGE = (DOCS / "results.md").read_text()
OBJECTIVES = {
    *("nll", "focal", "mse", "nll+mmce", "focal+sb_ece", "focal+s_avuc"),
    "nll+s_avuc-interleaved",
}
# Of the years since the paper.
LATER = {
    *("dual_focal", "bsce_gra", "focal+esd", "focal+mdca", "focal+dca"),
    *("nll+mbls", "nll+acls"),
}


@pytest.fixture(scope="module")
def rows():
    return {name: collect.collect(path) for name, path in STUDIES.items()}


@pytest.fixture(scope="module")
def texts(rows):
    texts = {}
    for name, part in rows.items():
        made = {}
        for setting in part.results["setting"].unique():
            built = tables.build_tables(collect.of_setting(part, setting))
            for kind, table in built.items():
                made.setdefault(f"{kind}.md", {})[setting] = table
        texts[name] = {k: tables.to_markdown(v) for k, v in made.items()}
    return texts


def cells(text):
    """The rows of Markdown tables, without what only marks or aligns them."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    lines = [line.replace("**", "").replace(" †", "") for line in lines]
    table = [tuple(map(str.strip, line.split("|"))) for line in lines]
    return [row for row in table if set("".join(row)) - set(":-")]


@pytest.mark.parametrize("study", STUDIES)
def test_the_committed_tables_are_those_of_the_rows(study, texts):
    paths = sorted((STUDIES[study] / "tables").glob("*.md"))
    assert {path.name for path in paths} == set(texts[study])
    for path in paths:
        assert path.read_text() == texts[study][path.name]


def test_the_page_of_results_includes_the_tables():
    included = re.findall(
        r"^```\{include\} (\S+)\n:start-after: \"(.*)\"$", PAGE, re.M
    )
    assert len(included) >= 4
    for path, heading in included:
        assert heading.replace(r"\\", "\\") in (DOCS / path).read_text()


def test_the_table_of_the_readme_is_of_the_rows(texts):
    readme = (CIFAR.parents[1] / "README.md").read_text()
    shown = [row for row in cells(readme) if " ± " in "".join(row)]
    assert shown and set(shown) <= set(cells(texts["heads"]["results.md"]))


def test_objectives_of_a_setting_have_the_same_seeds(rows):
    for part in rows.values():
        for _, runs in part.results.groupby("setting"):
            assert set(runs["test_examples"]) == {10_000}
            seeds = set(runs["seed"])
            assert len(seeds) > 2
            for _, own in runs.groupby("objective"):
                assert set(own["seed"]) == seeds
    heads = rows["heads"].results.groupby("setting")["objective"].unique()
    paper = config.expand_objectives(["paper"], "cifar10")
    assert len(heads) == 2
    assert all(set(names) == set(paper) for names in heads)
    small = rows["results"].results.groupby("setting")["objective"].unique()
    assert OBJECTIVES | LATER in map(set, small)


def test_the_page_is_made_of_the_rows_again(rows, tmp_path):
    path = tmp_path / "report.html"
    # Of one regime; the others have the same columns.
    part = rows["heads"]
    setting = part.results["setting"].iloc[0]
    report.write_report(collect.of_setting(part, setting), path)
    page = path.read_text()
    assert "Effect sizes" in page and "When does a secondary loss help" in page
    assert "under shift" in page
