"""What a user types first, and types wrong."""

import ast
import json
import os
import re
import shlex
import subprocess
import sys
import types

import numpy as np
import pytest

import caltrain_tf as ct
from baselines import command_line
from tests.baselines.scripts import ROOT, run_here, start
from tests.experiments.configs import TINY_FLAGS, load

TRAINING = "primary secondary interleaved tpu num_gpus multi_worker data_dir"
POOL = "parallel ray run_cpus run_gpus"
# Flags that `--helpshort` lists.
SCRIPTS = {
    "cifar/train.py": f"config output_dir {TRAINING}",
    "imagenet/train.py": f"config output_dir {TRAINING}",
    "tune.py": f"config output_dir {TRAINING} also trials strategy {POOL}",
    "study.py": f"config output_dir objectives seeds shift tuned {POOL}",
    "shift_benchmark.py": "run_dir corrupted_dir corruptions severities",
    "calibrate.py": "run_dir outputs",
    "report.py": "output overwrite dirichlet",
}
QUICK = "--config=configs/quickstart.py"


def run(script, *arguments):
    """A script in a process as fresh as a user's: what it wrote."""
    process = start(script, *arguments)
    output, errors = process.communicate()
    return subprocess.CompletedProcess(
        script, process.returncode, output, errors
    )


def test_every_script_is_here():
    scripts = {
        path.relative_to(ROOT / "baselines").as_posix()
        for path in (ROOT / "baselines").rglob("*.py")
        if "__main__" in path.read_text()
    }
    assert scripts == set(SCRIPTS)


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_lists_the_flags(script):
    commands = [("--helpshort",), ("--help",)]
    if "config" in SCRIPTS[script]:
        commands.append((QUICK, "--helpshort"))
    for arguments in commands:
        done = run(script, *arguments)
        # Nothing of TensorFlow either: it is not imported for this.
        assert done.stderr == ""
        for name in SCRIPTS[script].split():
            assert f"--{name}:" in done.stdout.replace("[no]", ""), name


def test_full_help():
    done = run("cifar/train.py", "--helpfull")
    assert "--primary:" in done.stdout and "--verbosity:" in done.stdout
    for name in (*ct.losses.PRIMARY, *ct.losses.SECONDARY):
        assert re.search(rf"\b{name}\b", done.stdout), name
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            [QUICK, "--config.lss.beta=2"],
            "--config.lss.beta is no setting of configs/quickstart.py. Did you "
            "mean --config.loss.beta?",
        ),
        # The default configuration is read before any flag is parsed.
        (["--config.epoch=3"], "Did you mean --config.epochs?"),
        ([QUICK, "--config.model.name=x"], "Did you mean --config.model?"),
        ([QUICK, "--config.loss=x"], "<one of them>: beta, cross_replica"),
        ([QUICK, "--config.epochs=many"], "--config.epochs=many: invalid"),
        (["--config=configs/quickstrt.py"], "Did you mean configs/quickstart"),
        (["--config=README.md"], "--config must be a Python file"),
        (["--config=tests/__init__.py"], "--config must define `get_config()`"),
        ([QUICK, "--prmary=nll"], "'prmary'. Did you mean: primary"),
        ([QUICK, "nll"], "Unexpected arguments: nll"),
    ],
)
def test_mistyped_flags(arguments, text):
    done = run("cifar/train.py", *arguments)
    assert done.returncode == 1
    assert text in done.stderr
    # absl adds where help is to be had.
    assert "Pass --help" in done.stderr or done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_settings_that_are_there():
    done = run(
        "cifar/train.py",
        QUICK,
        "--config.loss.options.avuc.threshold=0.3",
        "--noconfig.jit_compile",
        "--config.search.beta=(1.0,)",
        "--only_check_args",
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Something to do wrong: a run of another configuration."""
    path = tmp_path_factory.mktemp("folder")
    (path / "run").mkdir()
    (path / "run" / "config.json").write_text("{}")
    (path / "file").write_text("no arrays")
    return path


@pytest.mark.parametrize(
    ("script", "arguments", "text"),
    [
        ("cifar/train.py", "--primary=focl", "--primary must be one of 'nll'"),
        ("cifar/train.py", "--secondary=sbece", "Did you mean 'sb_ece'"),
        ("cifar/train.py", "--interleaved", "--interleaved needs a secondary"),
        ("cifar/train.py", "--num_gpus=99", "--num_gpus must be an integer"),
        ("cifar/train.py", "--multi_worker", "--multi_worker=True needs the"),
        ("cifar/train.py", "--config.model=wrn-x", "--config.model: A network"),
        ("cifar/train.py", "--config.data.name=digit", "Did you mean 'digits'"),
        (
            "cifar/train.py",
            "--config.data.train_split=train[:x]",
            "--config.data: A split must be such as",
        ),
        ("cifar/train.py", "--config.precision=f8", "--config.precision: "),
        ("cifar/train.py", "--config.epochs=0", "--config.epochs` must be"),
        ("cifar/train.py", "--config.batch_size=9999", "--config.batch_size"),
        (
            "cifar/train.py",
            "--config.loss.options.nll.label_smoothing=2.0",
            "--config.loss.options.nll: `label_smoothing` must be",
        ),
        ("cifar/train.py", "--config.loss.beta=-1.0", "--config.loss: `beta`"),
        (
            "cifar/train.py",
            "--config.optimizer.decay_epochs=(9,3)",
            "--config.optimizer: `decay_epochs` must ascend",
        ),
        ("cifar/train.py", "--output_dir={}/run", "another --output_dir"),
        ("cifar/train.py", "--output_dir={}/file", "cannot be made.*--output_"),
        (
            "cifar/train.py",
            "--config.data.name=cifar10 --data_dir={}",
            "run `tfds build cifar10 --data_dir={}`.*--data_dir",
        ),
        ("study.py", "--objectives=nll,focl --output_dir={}/s", "--objectives"),
        ("study.py", "--seeds=a --output_dir={}/s", "--seeds must be integers"),
        ("study.py", "--tuned={}/no --output_dir={}/s", "--tuned must be a"),
        (
            "study.py",
            "--config.loss.primary=mse --output_dir={}/s",
            "study varies: --objectives",
        ),
        (
            "study.py",
            "--config.data.name=cifar10 --data_dir={} --output_dir={}/s",
            "No data of 'cifar10'",
        ),
        (
            "tune.py",
            "--config.data.name=cifar10 --data_dir={} --output_dir={}/t",
            "No data of 'cifar10'",
        ),
        ("tune.py", "--also=bach_size=1 --output_dir={}/t", "--also must be"),
        (
            "tune.py",
            "--secondary=sb_ece --tpu=local --parallel=2 --output_dir={}/t",
            "--tpu is used by one run at a time: --parallel must be 1",
        ),
        (
            "study.py",
            "--run_gpus=1 --output_dir={}/s",
            "--run_gpus only counts with --ray",
        ),
        (
            "study.py",
            "--ray=auto --parallel=2 --output_dir={}/s",
            "--parallel only counts without --ray",
        ),
        ("shift_benchmark.py", "--run_dir={}", "--run_dir must be the folder"),
        ("shift_benchmark.py", "--run_dir={} --corruptions=fogg", "'fog'"),
        ("shift_benchmark.py", "--run_dir={} --severities=6", "--severities"),
        ("calibrate.py", "", "Pass either --run_dir or --outputs"),
        ("calibrate.py", "--run_dir={}", "--run_dir must be the folder of"),
        ("calibrate.py", "--outputs={}/file", "--outputs must be an .npz file"),
        (
            "calibrate.py",
            "--outputs={}/none",
            "--outputs must be.*No such",
        ),
        ("report.py", "", "Pass the folders of runs"),
        ("report.py", "{}/none", "must be folders of runs"),
    ],
)
def test_mistakes_end_in_one_line(script, arguments, text, folder):
    arguments = arguments.replace("{}", str(folder)).split()
    if "config" in SCRIPTS[script]:
        arguments.insert(0, f"--config={ROOT / 'configs' / 'quickstart.py'}")
    if script == "cifar/train.py" and "output_dir" not in arguments[-1]:
        arguments.append(f"--output_dir={folder / 'new'}")
    done = run_here(script, *arguments)
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert re.search(text.replace("{}", str(folder)), line), line
    assert not (folder / "new" / "checkpoints").exists()
    assert not (folder / "s").exists() and not (folder / "t").exists()


def test_only_noise_is_left_out():
    program = """if True:
        import os
        import command_line
        with command_line._without_noise():
            os.write(2, b"I0000 00:00:1794.7   10 port.cc:153] oneDNN is on\\n")
            os.write(2, b"E0000 00:00:1794.7   10 x.cc:1] out of memory\\n")
            os.write(2, b"last words\\n")
            if "ABORT" in os.environ:
                os.abort()
        os.write(2, b"I0000 00:00:1794.7   10 later\\n")
    """

    def errors(**environment):
        env = {**os.environ, "PYTHONPATH": str(ROOT / "baselines")}
        env.pop("TF_CPP_MIN_LOG_LEVEL")
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            env={**env, **environment},
        )
        return done.stderr.splitlines()

    kept = ["E0000 00:00:1794.7   10 x.cc:1] out of memory", "last words"]
    assert errors() == [*kept, "I0000 00:00:1794.7   10 later"]
    # By a process that outlives this one.
    assert errors(ABORT="1") == kept
    # What a user has set stays.
    assert len(errors(TF_CPP_MIN_LOG_LEVEL="0")) == 4


def test_mistakes_of_ours_keep_their_traceback():
    def is_message(function):
        with pytest.raises(Exception) as caught:
            function()
        return command_line._is_message(caught.value)

    flag = types.SimpleNamespace(name="seeds", value=["a"])
    assert is_message(lambda: command_line.read_integers(flag))
    assert is_message(lambda: open("/nowhere/at/all"))
    assert not is_message(lambda: int("a"))
    assert not is_message(lambda: command_line.read_integers(None))


def next_commands(output):
    """The commands that a training ends with, as lists of arguments."""
    _, _, end = output.partition("What to do next:")
    found = re.findall(r"^  python baselines/(.*)", end, re.M)
    return [shlex.split(command) for command in found]


def check_arguments(script, *arguments):
    done = run(script, *arguments, "--only_check_args")
    assert (done.returncode, done.stderr) == (0, "")


def test_what_to_do_after_a_training(tmp_path):
    folder = tmp_path / "a run"
    flags = [
        "--primary=focal",
        f"--output_dir={folder}",
        f"--config={ROOT / 'configs' / 'quickstart.py'}",
        *(f"--config.{key}={value}" for key, value in TINY_FLAGS.items()),
        "--config.epochs=1",
        "--config.optimizer.decay_epochs=()",
    ]
    done = run_here("cifar/train.py", *flags, "--secondary=sb_ece")
    assert done.returncode == 0, done.stderr
    assert "TS-SB-ECE  the same, chosen by" in done.stdout
    again, shift, study, report = next_commands(done.stdout)

    # The same without the secondary loss, then back again.
    done = run_here(*again)
    assert done.returncode == 0, done.stderr
    assert "Without the secondary loss" not in done.stdout
    assert (tmp_path / "a run-focal" / "results.json").exists()
    back, *_ = next_commands(done.stdout)
    assert set(back) > {"--primary=focal", "--secondary=sb_ece"}
    assert f"--output_dir={folder}-focal-focal+sb_ece" in back
    check_arguments(*back)

    done = run_here(
        *shift, "--corruptions=contrast", "--severities=1", "--num_examples=8"
    )
    assert done.returncode == 0, done.stderr
    assert (folder / "shift.csv").exists()
    page = tmp_path / "page.html"
    assert report[-1] == "--output=report.html"
    done = run_here(*report[:-1], f"--output={page}")
    assert done.returncode == 0, done.stderr
    assert "Focal + SB-ECE" in page.read_text()
    assert "--objectives=nll,focal,focal+sb_ece" in study
    assert f"--output_dir={folder}-study" in study
    assert "--config.batch_size=32" in study
    check_arguments(*study)


@pytest.mark.parametrize(
    ("script", "config", "arguments", "expected"),
    [
        # No flag: the configuration of the script, named for `study.py`.
        (
            "imagenet/train.py",
            "imagenet",
            {},
            {
                "imagenet/train.py": "--config=configs/imagenet.py "
                "--primary=nll --secondary=sb_ece",
                "shift_benchmark.py": "--run_dir=runs/nll",
                "study.py": "--config=configs/imagenet.py "
                "--objectives=nll,nll+sb_ece --seeds=0,1,2 "
                "--output_dir=studies/imagenet",
                "report.py": "runs/nll --output=report.html",
            },
        ),
        (
            "cifar/train.py",
            "cifar10",
            {
                "primary": "mse",
                "config.loss.secondary": "s_avuc",
                "interleaved": True,
                "config.interleaved.held_out_fraction": 0.25,
                "config.seed": 7,
                "data_dir": "data",
                "output_dir": "here/",
            },
            {
                "cifar/train.py": "--config=configs/cifar10.py "
                "--config.interleaved.held_out_fraction=0.25 --primary=mse "
                "--secondary=none --nointerleaved --config.seed=7 "
                "--output_dir=here-mse --data_dir=data",
                "shift_benchmark.py": "--run_dir=here/ --data_dir=data",
                "study.py": "--config=configs/cifar10.py "
                "--config.interleaved.held_out_fraction=0.25 "
                "--objectives=nll,mse,mse+s_avuc-interleaved --seeds=0,1,2 "
                "--output_dir=here-study --data_dir=data",
                "report.py": "here/ --output=report.html",
            },
        ),
    ],
)
def test_next_commands_have_the_flags_of_the_run(
    script, config, arguments, expected, tmp_path, monkeypatch
):
    settings = load(config)
    for flag, value in arguments.items():
        if flag.startswith("config."):
            key = flag.removeprefix("config.")
            settings.update_from_flattened_dict({key: value})
    settings.loss.primary = arguments.get("primary", settings.loss.primary)
    settings.interleaved.enabled = "interleaved" in arguments
    monkeypatch.chdir(tmp_path)
    for folder in ("baselines", "configs"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    # A finished run: what is there is shown.
    run_dir = tmp_path / arguments.get("output_dir", "runs/nll")
    run_dir.mkdir(parents=True)
    (run_dir / "config.json").write_text(json.dumps(settings.to_dict()))
    logits = 2 * np.eye(3, dtype="float32")[[0, 1, 2, 0, 1, 2, 0, 1]]
    labels = np.array([0, 1, 2, 0, 1, 2, 1, 0])
    calibrators = ct.evaluation.fit_calibrators(logits, labels)
    results = ct.evaluation.final_results((logits, labels), calibrators)
    (run_dir / "results.json").write_text(json.dumps(results))
    typed = [
        f"--{flag}" if value is True else f"--{flag}={value}"
        for flag, value in arguments.items()
    ]
    process = start(script, *typed, cwd=tmp_path)
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    assert next_commands(output) == [
        [name, *text.split()] for name, text in expected.items()
    ]
    for command in next_commands(output)[:3]:
        check_arguments(*command)


def commands(path):
    """The commands that a script's docstring or a README shows."""
    text = path.read_text()
    if path.suffix == ".py":
        lines = (ast.get_docstring(ast.parse(text)) or "").replace("\\\n", " ")
        return [line for line in lines.splitlines() if line[:7] == "python "]
    blocks = re.findall(r"^```([^\n]*)\n(.*?)^```$", text, re.S | re.M)
    return [
        block
        for language, block in blocks
        if language in ("", "bash") and "python baselines/" in block
    ]


def test_commands_elsewhere_pass_the_checks_of_flags(tmp_path):
    # README.md of the project has a test that runs what it shows.
    shown = [
        command
        for folder in ("baselines", "configs", "docs")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in (".py", ".md") and "results" not in path.parts
        for command in commands(path)
    ]
    assert len(shown) > 20
    for folder in ("baselines", "configs"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    only_check = (
        f'python() {{ echo "$@"; {sys.executable} "$@" --only_check_args; }}'
    )
    done = subprocess.run(
        ["bash", "-euc", "\n".join([only_check, *dict.fromkeys(shown)])],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-500:] + done.stderr
    assert done.stderr == ""
    assert done.stdout.count("baselines/") > 30
