"""The package as a user meets it: its import, its names, its README."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import caltrain_tf as ct
from caltrain_tf import checks

ROOT = pathlib.Path(__file__).parents[1]
# What the import must do without; Keras itself imports some of them if it can.
HEAVY = (
    "IPython",
    "etils",
    "jinja2",
    "matplotlib",
    "ml_collections",
    "pandas",
    "sklearn",
    "tensorflow_datasets",
)


# A process as fresh as the user's, in which libraries are missing.
SCRIPT = """
import sys
sys.modules.update(dict.fromkeys({missing}))
import keras
before = set(sys.modules)
import caltrain_tf as ct
print(*sorted(set(sys.modules) - before))
for room in ("figures", "training"):
    try:
        getattr(ct, room)
    except ImportError as error:
        print(error)
"""


@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_the_import_is_light_and_a_missing_library_is_named(backend):
    missing = HEAVY + (("tensorflow",) if backend == "jax" else ())
    output = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(missing=missing)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": backend},
    ).stdout
    added, *errors = output.splitlines()[-3:]
    added = added.split()
    assert "caltrain_tf.losses.composite" in added
    foreign = {name.partition(".")[0] for name in added}
    foreign -= {"caltrain_tf", *sys.stdlib_module_names}
    # The second one is a module of SciPy.
    assert foreign <= {"scipy", "_moduleTNC", "numpy", "threadpoolctl"}
    needed = "tensorflow" if backend == "jax" else "etils"
    assert errors == [
        f"`caltrain_tf.{room}` needs {library!r}, which is not installed. "
        f'Run `pip install "caltrain_tf[{extra}]"`.'
        for library, room, extra in (
            ("matplotlib", "figures", "figures"),
            (needed, "training", "tensorflow,baselines"),
        )
    ]


def test_libraries_of_extras_are_named():
    with pytest.raises(ImportError, match=r"caltrain_tf\[baselines\]"):
        checks.library("not_installed", "baselines")


def test_the_distributions_are_whole(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for name in ("LICENSE", "README.md", "pyproject.toml", "setup.py"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(
        ROOT / "caltrain_tf",
        source / "caltrain_tf",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    python = [sys.executable, "-m"]
    made, unpacked = tmp_path / "dist", tmp_path / "unpacked"

    def run(*command, **options):
        done = subprocess.run(
            command, capture_output=True, text=True, **options
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(*python, "build", f"--outdir={made}", str(source))
    files = [str(path) for path in made.iterdir()]
    assert len(files) == 2
    run(*python, "twine", "check", "--strict", *files)
    (wheel,) = made.glob("*.whl")
    install = ["pip", "install", "--no-deps", f"--target={unpacked}"]
    run(*python, *install, str(wheel))
    program = (
        "import caltrain_tf as ct; from caltrain_tf.experiments import tables;"
        "print(ct.__file__, len(tables.read_paper()))"
    )
    path = {**os.environ, "PYTHONPATH": str(unpacked)}
    printed = run(sys.executable, "-c", program, cwd=tmp_path, env=path)
    assert printed.split() == [f"{unpacked}/caltrain_tf/__init__.py", "42"]
    there = {p.relative_to(unpacked).as_posix() for p in unpacked.rglob("*")}
    for path in (ROOT / "caltrain_tf").rglob("*"):
        if path.suffix in (".py", ".csv", ".j2"):
            assert path.relative_to(ROOT).as_posix() in there


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
