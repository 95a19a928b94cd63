"""Everything that README.md and the guides say to type, typed.

In a new folder, with a home without data sets. The first command and the code
are run in processes of their own, as a user starts them, without what our
conftest.py sets. Commands get flags that make them short. What needs CIFAR,
ImageNet or a TPU ends in one line that says so.
"""

import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys

import matplotlib
import numpy as np
import pytest

import caltrain_tf as ct
from tests.baselines.scripts import run_here

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
# The code of these pages is run by `docs_test.py`.
PAGES = [
    (ROOT / "docs" / f"{name}.md").read_text()
    for name in (
        "guides/command_line",
        "guides/scaling",
        "guides/shift",
        "guides/speed",
    )
]
FENCED = [
    re.findall(r"^```(\w*)\n(.*?)^```$", text, re.S | re.M)
    for text in (README, *PAGES)
]
SNIPPETS = [text for language, text in FENCED[0] if language == "python"]
COMMANDS = [
    line
    for blocks in FENCED
    for language, text in blocks
    if language in ("", "bash")
    for line in text.replace("\\\n", " ").splitlines()
]
INLINE = [
    command
    for text in (README, *PAGES, (ROOT / "docs" / "results.md").read_text())
    for command in re.findall(r"`(python [^`]+)`", text)
]

TRAIN = (
    'pip install -e ".[tensorflow,baselines]" && '
    "python baselines/cifar/train.py "
    "--config=configs/quickstart.py --primary=focal --secondary=sb_ece"
)
SHIFT = "python baselines/shift_benchmark.py --run_dir=runs/focal+sb_ece"
STUDY = (
    "python baselines/study.py --config=configs/quickstart.py "
    "--objectives=nll,focal,focal+sb_ece,focal+s_avuc --parallel=2 "
    "--output_dir=studies/quickstart"
)
REPORT_STUDY = (
    "python baselines/report.py studies/quickstart --output=report.html"
)
REPORT = "python baselines/report.py studies/cifar10 --output=report.html"
CALIBRATE_RUN = "python baselines/calibrate.py --run_dir=runs/focal+sb_ece"
CALIBRATE = "python baselines/calibrate.py --outputs=network.npz"
CALIBRATE_SHIFTED = (
    "python baselines/calibrate.py --outputs=resnet20_cifar10c.npz"
)
# Of a bucket or several machines; `baselines/flags_test.py` checks their flags,
# and `experiments/train_test.py` trains with two workers.
ELSEWHERE = [
    line
    for line in COMMANDS
    if "gs://" in line or "--ray=auto" in line or "--multi_worker" in line
]
# `.ci/run` types it; this test is part of it.
PYTEST = 'pip install -e ".[tests]" && pytest'
NO_DATA = "No data of '{}'.*Run `tfds build .*--data_dir"
# The last line of what cannot be done here.
ENDS = {
    "python baselines/cifar/train.py --primary=focal --secondary=sb_ece "
    "--tpu=local": ".*TPU.*|" + NO_DATA.format("cifar10"),
    "python baselines/cifar/train.py --config=configs/cifar100.py "
    "--primary=nll --secondary=s_avuc --interleaved": NO_DATA.format(
        "cifar100"
    ),
    "python baselines/imagenet/train.py --primary=nll --secondary=s_avuc "
    "--data_dir=$HOME/tensorflow_datasets": NO_DATA.format("imagenet"),
    "python baselines/tune.py --config=configs/cifar10.py --objectives=paper "
    "--output_dir=tuning": NO_DATA.format("cifar10"),
    "python baselines/study.py --config=configs/cifar10.py --tuned=tuning "
    "--output_dir=studies/cifar10 --shift": "--tuned must be a JSON file",
}
EXPORTS = [line for line in COMMANDS if line.startswith("export TF_CONFIG=")]
TINY = " ".join(
    f"--config.{setting}"
    for setting in (
        "epochs=1",
        "batch_size=16",
        "'data.train_split=train[:64]'",
        "'optimizer.decay_epochs=()'",
        "steps_per_execution=1",
        # As the README spells it.
        "loss.options.sb_ece.temperature=0.02",
    )
)
PRELUDE = """
import keras
import numpy as np
import tensorflow as tf

rng = np.random.default_rng(0)
images = rng.normal(size=(64, 8)).astype("float32")
ids = rng.integers(0, 3, 64)
train = tf.data.Dataset.from_tensor_slices((images, ids)).batch(16)
val = held_out = train.take(2)
model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(3)])
val_logits = rng.normal(0, 3, (200, 3)).astype("float32")
# Over-confident: the labels follow softer probabilities.
val_labels = (val_logits + 2 * rng.gumbel(size=(200, 3))).argmax(axis=1)
probs, labels = np.asarray(keras.ops.softmax(val_logits)), val_labels
rows = [
    {
        "setting": "digits",
        "objective": objective,
        "primary": "focal",
        "secondary": objective.partition("+")[2],
        "interleaved": False,
        "seed": seed,
        "accuracy": 0.9 + 0.001 * seed,
        "ece": 0.01 * len(objective) + 0.002 * seed,
        "ece_ts": 0.02 + 0.002 * seed,
        "ece_ts_sb_ece": 0.03 + 0.002 * seed,
    }
    for objective in ("focal", "focal+sb_ece")
    for seed in range(3)
]
"""
AFTERWARDS = """
import runpy

assert "secondary_loss" in model.get_metrics_result()
# They take minutes: what they import and define is there.
for path in {benchmarks}:
    runpy.run_path(path)
"""


@pytest.fixture(autouse=True)
def scripts(tmp_path):
    """Puts the scripts into the user's folder."""
    for folder in ("baselines", "benchmarks", "configs"):
        (tmp_path / folder).symlink_to(ROOT / folder)


@pytest.fixture
def start(tmp_path):
    """Starts a command in the user's folder."""
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        # A new home would have matplotlib look for fonts again.
        "MPLCONFIGDIR": matplotlib.get_cachedir(),
        "PYTHONPATH": str(ROOT),
    }
    for name in ("TF_CPP_MIN_LOG_LEVEL", "TFDS_DATA_DIR", "KERAS_BACKEND"):
        environment.pop(name, None)

    def start_command(command):
        return subprocess.Popen(
            [sys.executable, *shlex.split(command)[1:]],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start_command


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a command to its end in this process: its code, output, errors."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("TFDS_DATA_DIR", raising=False)
    monkeypatch.chdir(tmp_path)

    def run_command(command):
        _, script, *rest = shlex.split(os.path.expandvars(command))
        done = run_here(script.removeprefix("baselines/"), *rest)
        return done.returncode, done.stdout, done.stderr

    return run_command


def test_every_command_is_here():
    train = TRAIN.partition(" && ")[2]
    tested = {TRAIN, train, SHIFT, REPORT, PYTEST, *ENDS}
    tested |= {STUDY, REPORT_STUDY, *EXPORTS, *ELSEWHERE}
    tested |= {CALIBRATE, CALIBRATE_RUN}
    assert [command for command in COMMANDS if command not in tested] == []
    assert tested <= set(COMMANDS)
    scripts = {command for command in INLINE if "benchmarks/" not in command}
    assert scripts == {CALIBRATE_SHIFTED}


def test_every_loss_is_in_the_table():
    names = [*ct.losses.PRIMARY, *ct.losses.SECONDARY]
    assert [name for name in names if f"`{name}`" not in README] == []


def test_a_run_is_trained_and_looked_at(start, run, tmp_path):
    train = f"{TRAIN.partition(' && ')[2]} {TINY}"
    stopped = start(train)
    for line in stopped.stderr:
        if line.startswith("epoch 1/1:   0%"):
            break
    stopped.send_signal(signal.SIGINT)
    _, errors = stopped.communicate()
    assert stopped.returncode == 130, errors
    assert "Stopped; the same command goes on." in errors
    assert "Traceback" not in errors
    folder = tmp_path / "runs" / "focal+sb_ece"
    assert list((folder / "checkpoints").glob("ckpt-*.index"))

    code, output, errors = run(train)
    assert code == 0, errors
    assert "focal+sb_ece on digits, test split" in output
    assert "/4 [00:00" in errors and " 0/4 [00:00" not in errors
    assert (folder / "results.json").exists()

    few = "--corruptions=contrast --severities=1,5 --num_examples=20"
    code, output, errors = run(f"{SHIFT} {few}")
    assert code == 0, errors
    assert "severity 5" in output and (folder / "shift.csv").exists()

    arrays = {}
    for split in ("calibration", "test"):
        with np.load(folder / "predictions" / f"{split}.npz") as predictions:
            for kind in ("logits", "labels"):
                arrays[f"{split}_{kind}"] = predictions[kind]
    np.savez(tmp_path / "network.npz", **arrays)
    logits, labels = arrays["test_logits"], arrays["test_labels"]
    np.savez(
        tmp_path / "resnet20_cifar10c.npz",
        clean_logits=logits,
        clean_labels=labels,
        corrupted_logits=np.tile(logits[-50:], (2, 5, 1, 1)),
        corrupted_labels=labels[-50:],
    )
    for name in ("cifar10", "quickstart"):
        study = tmp_path / "studies" / name
        shutil.copytree(folder, study / "focal+sb_ece" / "seed0")
    # It has what it needs; `baselines/study_test.py` lets one train.
    study = f"{STUDY} --seeds=0 --objectives=focal+sb_ece {TINY}"
    looks = (CALIBRATE_RUN, CALIBRATE, CALIBRATE_SHIFTED)
    for command in (*looks, study, REPORT, REPORT_STUDY):
        code, output, errors = run(command)
        assert code == 0, errors
        assert "TS-SB-ECE" in output
    assert "Focal + SB-ECE" in output
    assert "under shift" in (tmp_path / "report.html").read_text()


def test_what_needs_more_says_so_in_one_line(run):
    for command, end in ENDS.items():
        code, _, errors = run(command)
        assert code == 1
        # The cause of an error may follow it.
        assert len(errors.splitlines()) <= 2, errors
        assert re.search(end, errors.splitlines()[-1]), errors


def test_the_snippets(start, tmp_path):
    assert SNIPPETS
    benchmarks = sorted(
        {command.split()[1] for command in INLINE if "benchmarks/" in command}
    )
    program = [PRELUDE, *SNIPPETS, AFTERWARDS.format(benchmarks=benchmarks)]
    (tmp_path / "snippets.py").write_text("\n".join(program))
    process = start("python snippets.py")
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert (tmp_path / "reliability.png").exists()
