"""What a user types first, and types wrong."""

import ast
import re
import signal
import subprocess

import pytest

import caltrain_tf as ct
from tests.baselines.scripts import ROOT, run_here, start
from tests.experiments.configs import TINY_FLAGS

OBJECTIVE = "primary secondary interleaved tpu num_gpus data_dir"
TRAINING = f"{OBJECTIVE} multi_worker tuned init_from resume"
POOL = "parallel ray run_cpus run_gpus run_resources"
# Flags that `--helpshort` lists.
SCRIPTS = {
    "cifar/train.py": f"config output_dir {TRAINING}",
    "imagenet/train.py": f"config output_dir {TRAINING}",
    "tune.py": f"config output_dir objectives {OBJECTIVE} {POOL}",
    "study.py": f"config output_dir objectives seeds shift tuned {POOL}",
    "shift_benchmark.py": "run_dir corrupted_dir corruptions severities",
    "calibrate.py": "run_dir outputs",
    "embed.py": "model data output_dir corruptions",
    "report.py": "output calibrators",
}
QUICK = f"--config={ROOT / 'configs' / 'quickstart.py'}"


def test_every_script_is_here():
    scripts = {
        path.relative_to(ROOT / "baselines").as_posix()
        for path in (ROOT / "baselines").rglob("*.py")
        if "__main__" in path.read_text()
    }
    assert scripts == set(SCRIPTS)


def test_help_lists_the_flags():
    started = {script: start(script, "--helpshort") for script in SCRIPTS}
    whole = start("cifar/train.py", "--helpfull")
    for script, process in started.items():
        output, errors = process.communicate()
        # Nothing of TensorFlow either: it is not imported for this.
        assert errors == "", script
        for name in SCRIPTS[script].split():
            assert f"--{name}:" in output.replace("[no]", ""), (script, name)
    output, errors = whole.communicate()
    assert errors == "" and "--verbosity:" in output
    for name in (*ct.losses.PRIMARY, *ct.losses.SECONDARY):
        assert re.search(rf"\b{name}\b", output), name


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([QUICK, "--config.lss.beta=2"], "lss.*Did you mean .loss"),
        # Of the default configuration.
        (["--config.epoch=3"], "epoch.*Did you mean .epochs"),
        ([QUICK, "--config.epochs=many"], "--config.epochs=many: invalid"),
        (["--config=none.py"], "none.py"),
        ([QUICK, "--prmary=nll"], "'prmary'. Did you mean: primary"),
        ([QUICK, "nll"], "Unexpected arguments: nll"),
    ],
)
def test_mistyped_flags(arguments, text):
    done = run_here("cifar/train.py", *arguments)
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert re.search(text, line), line


def test_a_study_sets_the_seed_itself(tmp_path):
    done = run_here(
        "study.py", QUICK, "--config.seed=3", f"--output_dir={tmp_path}"
    )
    assert done.returncode == 1
    assert "--config.seed varies in a study" in done.stderr


def test_settings_that_are_there():
    done = run_here(
        "cifar/train.py",
        QUICK,
        "--config.loss.options.sb_ece.lower=chance",
        "--config.loss.options.mmce.root=True",
        "--config.loss.options.avuc.threshold=0.3",
        "--noconfig.jit_compile",
        "--config.search.beta=(1.0,)",
        "--config.precision=mixed_float16",
        "--config.accumulate_steps=4",
        "--only_check_args",
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Something to do wrong: a run of another configuration."""
    path = tmp_path_factory.mktemp("folder")
    (path / "run").mkdir()
    (path / "run" / "config.json").write_text("{}")
    (path / "file").write_text("no arrays")
    (path / "list.json").write_text("[1]")
    (path / "flat.json").write_text('{"nll": 3}')
    (path / "lost").mkdir()
    (path / "lost" / "results.json").write_text('{"accuracy": 0.5}')
    return path


@pytest.mark.parametrize(
    ("script", "arguments", "text"),
    [
        ("cifar/train.py", "--primary=focl", "`primary` must be one of 'nll'"),
        ("cifar/train.py", "--secondary=sbece", "Did you mean 'sb_ece'"),
        ("cifar/train.py", "--interleaved", "--interleaved needs --secondary"),
        ("cifar/train.py", "--num_gpus=99", "`num_gpus` must be"),
        (
            "cifar/train.py",
            "--config.model=wrn-x",
            "`name` must be one of 'wrn-",
        ),
        ("cifar/train.py", "--config.data.name=digit", "Did you mean 'digits'"),
        ("cifar/train.py", "--config.precision=f8", "'f8' to a mixed"),
        ("cifar/train.py", "--config.epochs=-1", "--config.epochs"),
        ("cifar/train.py", "--config.batch_size=9999", "batch_size"),
        (
            "cifar/train.py",
            "--config.loss.options.nll.label_smoothing=2.0",
            "`label_smoothing` must be",
        ),
        (
            "cifar/train.py",
            "--config.optimizer.decay_epochs=(9,3)",
            "`decay_epochs` must ascend",
        ),
        ("cifar/train.py", "--output_dir={}/run", "of another configuration"),
        (
            "cifar/train.py",
            "--primary=nll --output_dir={}/x --resume={}/run",
            "Received also: --primary --output_dir --config.model",
        ),
        ("cifar/train.py", "--output_dir={}/file", "cannot be made"),
        (
            "cifar/train.py",
            "--config.data.name=cifar10 --data_dir={}",
            "Run `tfds build cifar10 --data_dir={}`",
        ),
        (
            "study.py",
            "--objectives=nll,focl --output_dir={}/s",
            "Received: primary='focl'",
        ),
        ("study.py", "--seeds=a --output_dir={}/s", "--seeds=a"),
        ("study.py", "--tuned={}/no --output_dir={}/s", "--tuned must be a"),
        ("study.py", "--run_resources=4 --output_dir={}/s", "run_resources=4"),
        ("study.py", "--parallel=0 --output_dir={}/s", "positive integer"),
        ("study.py", "--shift_flags=-x --output_dir={}/s", "needs --shift"),
        ("study.py", "--seeds=0,-1 --output_dir={}/s", "`--config.seed` must"),
        ("study.py", "--output_dir=", "--output_dir must not be empty"),
        ("cifar/train.py", "--output_dir={}/lost", "but no config.json"),
        ("cifar/train.py", "--tuned={}/list.json", "must hold a dictionary"),
        ("cifar/train.py", "--tuned={}/flat.json", "settings by objective"),
        ("cifar/train.py", "--config={}/file", "invalid syntax"),
        (
            "cifar/train.py",
            "--config.optimizer.reference_batch_size=0",
            "reference_batch_size",
        ),
        (
            "cifar/train.py",
            "--config.optimizer.decay_epochs=('a',)",
            "decay_epochs` must be a finite number",
        ),
        (
            "tune.py",
            "--primary=nll --config.search.l2=a --output_dir={}/s",
            "--config.search.l2 must hold numbers",
        ),
        ("shift_benchmark.py", "--run_dir=", "--run_dir must not be empty"),
        ("shift_benchmark.py", "--run_dir={} --batch_size=0", "positive int"),
        ("shift_benchmark.py", "--run_dir={}", "must be the folder"),
        ("shift_benchmark.py", "--run_dir={} --severities=x", "--severities"),
        ("shift_benchmark.py", "--run_dir={} --num_examples=0", "positive int"),
        ("calibrate.py", "", "Pass either --run_dir or --outputs"),
        ("calibrate.py", "--outputs={}/file", "must be an .npz file"),
        ("report.py", "", "Pass the folders of runs"),
    ],
)
def test_mistakes_end_in_one_line(script, arguments, text, folder):
    arguments = arguments.replace("{}", str(folder)).split()
    if "config" in SCRIPTS[script]:
        # The first of two flags of one name does not count.
        arguments = [QUICK, "--config.model=mlp-8", *arguments]
    if script == "cifar/train.py" and "output_dir" not in arguments[-1]:
        arguments.append(f"--output_dir={folder / 'new'}")
    done = run_here(script, *arguments)
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert re.search(text.replace("{}", str(folder)), line), line
    assert not (folder / "new" / "checkpoints").exists()
    assert not (folder / "s").exists() and not (folder / "t").exists()


def test_a_loss_that_is_not_finite_is_one_line(tmp_path):
    done = run_here(
        "cifar/train.py",
        QUICK,
        *(f"--config.{key}={value}" for key, value in TINY_FLAGS.items()),
        "--config.optimizer.learning_rate=1e30",
        f"--output_dir={tmp_path / 'run'}",
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("The loss is not finite at step ")
    assert "Traceback" not in done.stderr


def test_a_missing_library_names_its_extra(tmp_path):
    started = []
    for script, name, *arguments in (
        ("report.py", "jinja2", str(tmp_path)),
        # While the flags are read, which needs the configuration.
        ("cifar/train.py", "tensorflow", "--primary=nll"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.py").write_text("raise ImportError('gone')")
        path = f"{tmp_path / name}:{ROOT}"
        started.append(start(script, *arguments, PYTHONPATH=path))
    for process in started:
        _, errors = process.communicate()
        assert process.returncode == 1
        extra = "caltrain_tf[tensorflow,baselines]"
        # TensorFlow's own lines may come before.
        *_, last = errors.strip().splitlines()
        assert last == f'gone. Run `pip install "{extra}"`.'
        assert "Traceback" not in errors


def test_an_interrupt_while_tensorflow_is_imported(tmp_path):
    wait = "import time\nprint('now', flush=True)\ntime.sleep(600)\n"
    (tmp_path / "tensorflow.py").write_text(wait)
    path = f"{tmp_path}:{ROOT}"
    with start("cifar/train.py", "--primary=nll", PYTHONPATH=path) as process:
        assert process.stdout.readline() == "now\n"
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == ""
    assert process.returncode == 130


def test_scripts_have_the_backend_that_they_need(tmp_path):
    process = start(
        "cifar/train.py",
        QUICK,
        *(f"--config.{key}={value}" for key, value in TINY_FLAGS.items()),
        f"--output_dir={tmp_path / 'run'}",
        KERAS_BACKEND="jax",
    )
    _, errors = process.communicate()
    assert process.returncode == 0, errors


def test_verbosity_shows_the_traceback():
    with pytest.raises(ValueError, match="`primary` must be one of"):
        run_here("cifar/train.py", QUICK, "--primary=focl", "--verbosity=1")


def test_a_folder_that_is_no_run_is_not_resumed(folder):
    done = run_here("cifar/train.py", f"--resume={folder / 'run'}")
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert "run/config.json must be that of a run" in line


def test_what_to_do_after_a_training(trained):
    done = run_here("cifar/train.py", f"--resume={trained}")
    assert done.returncode == 0, done.stderr
    assert "TS-SB-ECE by one that is fitted" in done.stdout
    # `readme_test.py` runs these.
    assert done.stdout.endswith(
        f"  python baselines/shift_benchmark.py --run_dir={trained}\n"
        f"  python baselines/report.py {trained} --output=report.html\n"
    )


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


def test_commands_elsewhere_pass_the_checks_of_flags(tmp_path, monkeypatch):
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
    monkeypatch.chdir(tmp_path)
    # The shell expands what it would start.
    only_print = 'python() { printf "%s\\0" "$@"; echo; }'
    done = subprocess.run(
        ["bash", "-euc", "\n".join([only_print, *dict.fromkeys(shown)])],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line.split("\0")[:-1] for line in done.stdout.splitlines()]
    checked = 0
    for script, *arguments in filter(None, lines):
        if script.startswith("baselines/"):
            name = script.removeprefix("baselines/")
            done = run_here(name, *arguments, "--only_check_args")
            assert done.returncode == 0, (script, arguments, done.stderr)
            checked += 1
    assert checked > 30
