"""The package as a user meets it: its import, its names, its README."""

import pathlib
import re
import subprocess
import sys

import pytest

import caltrain_tf as ct

ROOT = pathlib.Path(__file__).parents[1]
HEAVY = (
    "IPython",
    "absl",
    "etils",
    "jinja2",
    "matplotlib",
    "ml_collections",
    "pandas",
    "scipy.optimize",
    "sklearn",
    "tensorflow_datasets",
)


# A process as fresh as the user's, in which two libraries are missing.
SCRIPT = """
import sys, keras
before = set(sys.modules)
import caltrain_tf as ct
print(*sorted(set(sys.modules) - before))
sys.modules.update(matplotlib=None, etils=None)
for room in ("figures", "training"):
    try:
        getattr(ct, room)
    except ImportError as error:
        print(error)
"""


def test_the_import_is_light_and_a_missing_library_is_named():
    output = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    ).stdout
    added, *errors = output.splitlines()[-3:]
    added = added.split()
    assert "caltrain_tf.losses.composite" in added
    assert [name for name in added if name.startswith(HEAVY)] == []
    # Ours and a few modules of the standard library.
    foreign = [name for name in added if not name.startswith("caltrain_tf")]
    assert len(foreign) < 10, foreign
    assert errors == [
        f"`caltrain_tf.{room}` needs {missing!r}, which is not installed. "
        f'Run `pip install "caltrain_tf[{extra}]"`.'
        for missing, room, extra in (
            ("matplotlib", "figures", "figures"),
            ("etils", "training", "tensorflow,baselines"),
        )
    ]


def test_rooms_are_attributes():
    for room in ct.__all__:
        assert getattr(ct, room) is not None
        assert room in dir(ct)
    with pytest.raises(AttributeError, match="'loses'"):
        _ = ct.loses


def test_both_places_state_the_same_version():
    metadata = (ROOT / "pyproject.toml").read_text()
    assert f'version = "{ct.__version__}"' in metadata


def test_ci_runs_the_command_of_the_readme():
    readme = (ROOT / "README.md").read_text()
    (command,) = re.findall(
        r"<!-- test command -->\n```\w*\n(.*?)\n```", readme, re.S
    )
    assert "pip install" in command and "pytest" in command
    assert '$(readme "test command")' in (ROOT / ".ci/run").read_text()
