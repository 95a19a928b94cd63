"""Data flows one way: which room may import what."""

import ast
import pathlib
import sys

import pytest

PACKAGE = pathlib.Path(__file__).parents[1] / "caltrain_tf"
ALL = {path.name for path in PACKAGE.iterdir() if path.is_dir()} - {
    "__pycache__"
}
# Files beside the rooms that every room may import.
SHARED = {"checks", "files", "inputs", "interleaved", "layers", "replicas"}
# A room of one file.
CALLBACKS = ({"losses", "metrics", "posthoc"}, {"keras", "numpy"})
DIAGNOSE = ({"figures", "metrics", "posthoc"}, {"numpy", "scipy"})
# room -> (our rooms, outside libraries) that it may import.
ROOMS = {
    "losses": (set(), {"keras"}),
    # The streaming soft-binned error has the bins of the loss.
    "metrics": ({"losses"}, {"keras", "numpy", "scipy", "sklearn"}),
    "posthoc": (
        {"metrics"},
        {"keras", "numpy", "scipy", "sklearn", "threadpoolctl"},
    ),
    "models": (set(), {"keras", "numpy"}),
    "data": (
        set(),
        # Keras: it reads folders of images. PIL: it compresses them.
        {
            "PIL",
            "keras",
            "numpy",
            "scipy",
            "sklearn",
            "tensorflow",
            "tensorflow_datasets",
        },
    ),
    "training": (
        set(),
        {"filelock", "keras", "numpy", "tensorflow", "tqdm"},
    ),
    "figures": ({"metrics"}, {"matplotlib", "numpy"}),
    "experiments": (
        ALL | {"callbacks"},
        {
            "PIL",
            "jinja2",
            # Of scikit-learn.
            "joblib",
            "keras",
            "ml_collections",
            "numpy",
            "pandas",
            "ray",
            "robustness_metrics",
            "scipy",
            "tensorflow",
            "tqdm",
        },
    ),
}
# Keras has no collectives or assertions in graphs; see the files.
EXCEPTIONS = {
    ("inputs.py", "tensorflow"),
    ("replicas.py", "tensorflow"),
}


def imported_modules(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            if node.module == "caltrain_tf":
                yield from (f"caltrain_tf.{a.name}" for a in node.names)
            else:
                yield node.module


def test_every_room_is_in_the_table():
    assert set(ROOMS) == ALL


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_it_may(room):
    check_imports(room, sorted((PACKAGE / room).rglob("*.py")), *ROOMS[room])


def test_callbacks_import_only_what_they_may():
    check_imports("callbacks", [PACKAGE / "callbacks.py"], *CALLBACKS)


def test_the_diagnosis_imports_only_what_it_may():
    check_imports("diagnose", [PACKAGE / "diagnose.py"], *DIAGNOSE)


def check_imports(room, paths, ours, outside):
    for path in paths:
        file = path.relative_to(PACKAGE).as_posix()
        for module in imported_modules(path):
            top, *rest = module.split(".")
            if top == "caltrain_tf":
                assert rest, f"{file} imports the whole package"
                allowed = rest[0] in ours | SHARED | {room}
            else:
                allowed = top in outside | sys.stdlib_module_names
            allowed = allowed or (file, top) in EXCEPTIONS
            assert allowed, f"{file} imports {module}"


@pytest.mark.parametrize("name", sorted(SHARED))
def test_shared_files_stand_alone(name):
    # TensorFlow: Keras has no collectives and no assertions in graphs.
    libraries = {"etils", "keras", "numpy", "tensorflow"}
    for module in imported_modules(PACKAGE / f"{name}.py"):
        top = module.removeprefix("caltrain_tf.").split(".")[0]
        allowed = libraries | SHARED | sys.stdlib_module_names
        assert top in allowed, module


def test_nobody_imports_the_scripts():
    for path in PACKAGE.rglob("*.py"):
        for module in imported_modules(path):
            assert module.split(".")[0] not in {"baselines", "configs"}
