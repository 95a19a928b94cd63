"""The site's pages: their code runs, and they name everything public.

The pages' own build, `sphinx-build -W docs site`, runs the whole gallery and
checks the links; here are the parts that take seconds.
"""

import contextlib
import io
import pathlib
import re
import runpy

import matplotlib
import pytest
from matplotlib import pyplot

import caltrain_tf as ct

ROOT = pathlib.Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [
    str(path.relative_to(DOCS).with_suffix(""))
    for path in sorted([*DOCS.glob("*.md"), *DOCS.glob("guides/*.md")])
    if "```python" in path.read_text()
]
FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.S | re.M)
NUMBER = re.compile(r"-?\d+\.\d+")
# What the page's snippet leaves to the reader.
PRELUDES = {
    "index": """
import keras
import numpy as np

rng = np.random.default_rng(0)
val_logits = rng.normal(size=(64, 3)).astype("float32")
val_labels = rng.integers(0, 3, 64)
x_train, y_train = val_logits, val_labels
model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(3)])
"""
}
# Those that take seconds; the build of the site runs all of them.
QUICK_SCRIPTS = (
    "decisions/plot_conformal.py",
    "measuring/plot_groups.py",
    "measuring/plot_reliability_intervals.py",
    "measuring/plot_study.py",
    "posthoc/plot_temperature.py",
    "training/plot_trainer.py",
)
ROOMS = (
    ct.callbacks,
    ct.data,
    ct.data.corruptions,
    ct.figures,
    ct.layers,
    ct.losses,
    ct.metrics,
    ct.models,
    ct.posthoc,
    ct.training,
)


@pytest.fixture(autouse=True)
def in_a_new_folder(tmp_path, monkeypatch):
    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)
    yield
    # Scripts of the gallery draw with pyplot, which keeps every figure.
    pyplot.close("all")


def blocks_of(text):
    """The page's blocks of Python, each with the output that is shown."""
    blocks = []
    for language, body in FENCED.findall(text):
        if language == "python":
            blocks.append([body, None])
        elif language == "output":
            blocks[-1][1] = body
    return blocks


def is_same(shown, printed):
    """Whether texts are equal but for two units of the last shown digit.

    Sums differ by rounding between CPUs, which can change the last digit.
    """
    if NUMBER.sub("0", shown).split() != NUMBER.sub("0", printed).split():
        return False
    return all(
        abs(float(a) - float(b)) <= 2.01 * 10.0 ** -len(a.partition(".")[2])
        for a, b in zip(
            NUMBER.findall(shown), NUMBER.findall(printed), strict=True
        )
    )


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs(page):
    names = {"__name__": "__main__"}
    exec(PRELUDES.get(page, ""), names)
    text = (DOCS / f"{page}.md").read_text()
    for number, (code, shown) in enumerate(blocks_of(text)):
        # In a file, since TensorFlow reads the source of functions.
        file = pathlib.Path(f"block{number}.py").absolute()
        file.write_text(code)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, str(file), "exec"), names)
        if shown is not None:
            assert is_same(shown, printed.getvalue()), printed.getvalue()


def test_outputs_are_compared_up_to_the_last_digit():
    assert is_same("a 0.123\n", "a  0.125")
    assert not is_same("a 0.123\n", "a 0.126")
    assert not is_same("a 1\n", "a 2") and not is_same("a 1\n", "b 1")


@pytest.mark.parametrize("script", QUICK_SCRIPTS)
def test_a_script_of_the_gallery_runs(script):
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        runpy.run_path(str(DOCS / "gallery" / script))
    assert printed.getvalue()


def test_every_public_name_is_on_an_api_page():
    text = "\n".join(path.read_text() for path in DOCS.glob("api/*.md"))
    listed = {}
    for room, body in re.findall(
        r"^\.\. api:: (\S+)\n\n((?:   .*\n)+)", text, re.M
    ):
        for line in body.splitlines():
            names, colon, _ = line.partition(":")
            listed.setdefault(room, []).extend(names.split())
    for room in ROOMS:
        public = getattr(room, "__all__", None) or [
            name
            for name, value in vars(room).items()
            if name[0] != "_"
            and getattr(value, "__module__", "") == room.__name__
        ]
        public = {
            name
            for name in public
            if not isinstance(getattr(room, name), type(ct))
        }
        assert public == set(listed[room.__name__])
    for names in listed.values():
        assert len(names) == len(set(names))


def test_every_room_is_on_the_api_page():
    text = (DOCS / "api" / "index.md").read_text()
    for room in ct.__all__:
        assert f"ct.{room}" in text


def test_links_lead_somewhere_in_the_repository():
    pages = [ROOT / "README.md", *DOCS.glob("**/*.md")]
    assert len(pages) > 20
    for page in pages:
        for link in re.findall(r"\]\(([^)]+)\)", page.read_text()):
            if not link.startswith("https://"):
                path = page.parent / link.partition("#")[0]
                assert path.exists(), (page.name, link)
