"""Code shared by the scripts: flags, a quiet start, one-line errors.

`caltrain_tf` is not imported at the top of this file: the import starts
TensorFlow, and `--help` or a mistyped flag should not wait for that.
"""

import contextlib
import difflib
import os
import pathlib
import re
import runpy
import shlex
import subprocess
import sys
import traceback

from absl import app, flags, logging
from ml_collections import config_flags

# The flags belong to the script that calls the functions here, so that
# `--helpshort` lists them.
flags.disclaim_key_flags()

CONFIGS = pathlib.Path(__file__).parents[1] / "configs"
NONE = "none"
# What TensorFlow writes when it is imported and looks for GPUs, before it
# reads TF_CPP_MIN_LOG_LEVEL: information, and the search for what a machine
# without GPUs does not have. Lines of the other kinds are shown.
_NOISE = (
    r"^WARNING: All log messages before absl::InitializeLog|"
    r"^I[0-9]{4} [0-9:.]+ |"
    r"^[-0-9]+ [0-9:.]+: I |"
    r"^To enable the following instructions|"
    r"failed call to cuInit|"
    r"Unable to register cu[A-Z]+ factory|"
    r"computation placer already registered"
)


def define_config(default, help_string):
    """Defines `--config` and `--config.x.y`; returns the holder.

    Args:
        default: The name of a file in `configs/`.
        help_string: What it configures.
    """
    path = str(CONFIGS / default)
    _check_config_flags(path)
    return config_flags.DEFINE_config_file(
        "config",
        path,
        f"{help_string} --config.<key>=<value> changes one of its settings, "
        "such as --config.epochs=10.",
        lock_config=True,
    )


def define_training(default_config):
    """Defines the flags of a training; returns the holder of `--config`.

    Args:
        default_config: The name of a file in `configs/`.
    """
    flags.DEFINE_string(
        "primary",
        None,
        "Primary loss: nll, focal, mse, dual_focal or bsce_gra.",
    )
    flags.DEFINE_string(
        "secondary",
        None,
        "Secondary loss: sb_ece, s_avuc, avuc, avuc_gs, mmce, sb_marginal_ece, "
        "esd, mdca, dca, mbls, acls or none.",
    )
    flags.DEFINE_bool(
        "interleaved",
        None,
        "Optimise the secondary loss on a held-out part of the training set.",
    )
    flags.DEFINE_string("tpu", None, "`local`, or the name of a TPU.")
    flags.DEFINE_integer(
        "num_gpus", None, "Number of GPUs to use; all by default."
    )
    flags.DEFINE_bool(
        "multi_worker", False, "Whether TF_CONFIG names several machines."
    )
    flags.DEFINE_string(
        "output_dir",
        None,
        "Folder of the run; runs/<primary>+<secondary> by default. The same "
        "command resumes a run that was stopped.",
    )
    flags.DEFINE_string("data_dir", None, "Folder of TensorFlow Datasets.")
    flags.DEFINE_string(
        "init_from", None, "A `.keras` file with the initial weights."
    )
    flags.DEFINE_list(
        "profile_steps",
        None,
        "First and last step to profile for TensorBoard, such as 10,20.",
    )
    return define_config(default_config, "Configuration file.")


def define_pool():
    """Defines the flags that say where several runs are executed."""
    flags.DEFINE_integer(
        "parallel",
        1,
        "Number of runs at a time on this machine; they share its processor "
        "and GPUs.",
    )
    flags.DEFINE_string(
        "ray",
        None,
        "Execute the runs on a Ray cluster: `auto` for the cluster of this "
        "machine, `local` for a new cluster on this machine alone, or the "
        "address of a cluster. All nodes must be able to access the folders.",
    )
    flags.DEFINE_integer(
        "run_cpus", 1, "With --ray, number of processors for one run."
    )
    flags.DEFINE_float("run_gpus", 0, "With --ray, number of GPUs for one run.")


def open_pool():
    """The pool that the flags of `define_pool` describe."""
    from caltrain_tf.experiments import pool

    values = flags.FLAGS
    on_ray = values.ray is not None
    here, there = ("parallel", "num_gpus"), ("run_cpus", "run_gpus")
    for name in here if on_ray else there:
        if values[name].present:
            raise ValueError(
                f"--{name} only counts {'without' if on_ray else 'with'} --ray."
            )
    if on_ray:
        return pool.RayPool(
            values.ray, values.run_cpus, values.run_gpus, values.tpu
        )
    return pool.LocalPool(values.parallel, values.num_gpus, values.tpu)


def read_training(config_holder):
    """The configuration with the losses of the other flags in it.

    Args:
        config_holder: What `define_training` returned.
    """
    from caltrain_tf import checks, losses

    config, values = config_holder.value, flags.FLAGS
    if values.primary is not None:
        config.loss.primary = checks.choice(
            "primary", values.primary, losses.PRIMARY
        )
    if values.secondary is not None:
        secondary = checks.choice(
            "secondary", values.secondary, (*losses.SECONDARY, NONE)
        )
        config.loss.secondary = None if secondary == NONE else secondary
    if values.init_from is not None:
        config.init_from = values.init_from
    if values.interleaved is not None:
        config.interleaved.enabled = values.interleaved
    if config.interleaved.enabled and config.loss.secondary is None:
        raise ValueError(
            "`interleaved` needs a secondary loss to optimise on the held-out "
            "part: --secondary=sb_ece, say. Received: no `secondary`"
        )
    return config


def train(config_holder):
    """Trains as the flags say, and prints the results.

    Args:
        config_holder: What `define_training` returned.
    """
    from caltrain_tf import evaluation, experiments, training
    from caltrain_tf.experiments.config import run_name

    values = flags.FLAGS
    config = read_training(config_holder)
    strategy = training.get_strategy(
        tpu=values.tpu,
        num_gpus=values.num_gpus,
        multi_worker=values.multi_worker,
    )
    output_dir = values.output_dir or os.path.join("runs", run_name(config))
    profile_steps = None
    if values.profile_steps:
        profile_steps = read_integers(flags.FLAGS["profile_steps"])
    results = experiments.train(
        config, output_dir, values.data_dir, strategy, profile_steps
    )
    print(f"\n{run_name(config)} on {config.data.name}, test split")
    print(evaluation.results_table(results))
    print(f"\nEverything is in {output_dir}. What to do next:")
    for title, command in _next_commands(config, output_dir):
        print(f"\n{title}:\n  {command}")


def _next_commands(config, output_dir):
    """What a user may want after a training: pairs of a title and a command.

    The commands have the flags of this run, where their scripts know them.

    Args:
        config: The run's configuration.
        output_dir: The run's folder.
    """
    from caltrain_tf.experiments.config import run_name

    values, scripts = flags.FLAGS, pathlib.Path(__file__).parent

    def command(script, *arguments):
        return shlex.join(["python", os.path.relpath(script), *arguments])

    def typed(*names):
        present = (values[name] for name in names if values[name].present)
        return [flag.serialize() for flag in present]

    file = config_flags.get_config_filename(values["config"])
    # The default is an absolute path.
    if not values["config"].present:
        file = os.path.relpath(file)
    settings = [f"--config={file}"]
    overrides = config_flags.get_override_values(values["config"])
    # Those that a study varies.
    varied = ("seed", "loss.primary", "loss.secondary", "interleaved.enabled")
    settings += [
        f"--config.{key}={value}"
        for key, value in overrides.items()
        if key not in varied
    ]
    if values.init_from is not None:
        settings.append(f"--config.init_from={values.init_from}")
    devices = typed("data_dir", "tpu", "num_gpus")

    primary, objective = config.loss.primary, run_name(config)
    title, secondary, other = "Without the secondary loss", NONE, primary
    if config.loss.secondary is None:
        title, secondary = "With a secondary loss", "sb_ece"
        objective = other = f"{primary}+{secondary}"
    again = [f"--primary={primary}", f"--secondary={secondary}"]
    if config.interleaved.enabled:
        again.append("--nointerleaved")
    if "seed" in overrides:
        again.append(f"--config.seed={config.seed}")
    study_dir = os.path.join("studies", pathlib.Path(file).stem)
    if values.output_dir is not None:
        beside = values.output_dir.rstrip("/")
        again.append(f"--output_dir={beside}-{other}")
        study_dir = f"{beside}-study"
    objectives = ",".join(dict.fromkeys(["nll", primary, objective]))
    return [
        (
            f"{title}, to compare",
            command(
                sys.argv[0],
                *settings,
                *again,
                *devices,
                *typed("multi_worker"),
            ),
        ),
        (
            "Under shift, 15 corruptions at 5 severities",
            command(
                scripts / "shift_benchmark.py",
                f"--run_dir={output_dir}",
                *devices,
                *typed("multi_worker"),
            ),
        ),
        (
            "A study of objectives over seeds",
            command(
                scripts / "study.py",
                *settings,
                f"--objectives={objectives}",
                "--seeds=0,1,2",
                f"--output_dir={study_dir}",
                *devices,
            ),
        ),
        (
            "A page of tables and figures of this run, or of a folder of runs",
            command(scripts / "report.py", output_dir, "--output=report.html"),
        ),
    ]


def read_integers(flag):
    """The integers of a flag that is a list."""
    try:
        return [int(value) for value in flag.value]
    except ValueError as error:
        raise ValueError(
            f"--{flag.name} must be integers. Received: {flag.value}"
        ) from error


def run(main, *, arguments=False, resumes=True):
    """Parses the flags and runs a script.

    An error that our own code raises is a message to the user: it ends the
    script in one line, which names flags as the user types them. Others keep
    their traceback, and `--verbosity=1` shows it for all.

    Args:
        main: Called with the arguments that are no flags; what it returns is
            the exit code.
        arguments: Whether there may be such.
        resumes: Whether the same command goes on with what was stopped.
    """
    end = "Stopped; the same command goes on." if resumes else "Stopped."

    def guarded(argv):
        if not flags.FLAGS["verbosity"].present:
            # What TensorFlow reports would stand in our progress.
            logging.set_verbosity(logging.WARNING)
        if argv[1:] and not arguments:
            return f"Unexpected arguments: {' '.join(argv[1:])}"
        try:
            with _without_noise():
                import tensorflow as tf

                tf.config.list_physical_devices()
            return main(argv[1:])
        except KeyboardInterrupt:
            print(f"\n{end}", file=sys.stderr)
            return 130
        except SystemExit as stop:
            if stop.code == 143:
                print(f"\n{end}", file=sys.stderr)
            raise
        except Exception as error:
            if logging.get_verbosity() > 0 or not _is_message(error):
                raise
            return _one_line(error)

    app.run(guarded)


@contextlib.contextmanager
def _without_noise():
    """Leaves `_NOISE` out of what is written to stderr.

    A process of its own reads it, so that no last words get lost where
    TensorFlow ends this one. A user who sets TF_CPP_MIN_LOG_LEVEL sees all.
    """
    if "TF_CPP_MIN_LOG_LEVEL" in os.environ:
        yield
        return
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    sys.stderr.flush()
    stderr = os.dup(2)
    command = ("grep", "--line-buffered", "-vE", _NOISE)
    try:
        reader = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=stderr)
    except FileNotFoundError:
        os.close(stderr)
        yield
        return
    os.dup2(reader.stdin.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(stderr, 2)
        os.close(stderr)
        reader.stdin.close()
        reader.wait()


def _is_message(error):
    """Whether an error is said to the user: a file's, or raised by us."""
    if isinstance(error, OSError) and error.filename is not None:
        return True
    ours = [os.path.abspath(__file__)]
    if "caltrain_tf" in sys.modules:
        ours.append(sys.modules["caltrain_tf"].__file__)
    last = traceback.extract_tb(error.__traceback__)[-1]
    is_ours = last.filename.startswith(tuple(map(os.path.dirname, ours)))
    # Not one that Python raises in the middle of our code: that is a mistake
    # of ours.
    return is_ours and (last.line or "").startswith("raise")


def _one_line(error):
    """The text of an error, with `--tpu` for `tpu` where that is a flag."""
    values = flags.FLAGS

    def as_flag(match):
        if match[2] in values:
            return f"--{match[1]}"
        if "config" in values and match[2] in values.config:
            return f"--config.{match[1]}"
        return match[0]

    return re.sub(r"`((\w+)(=\w+)?)`", as_flag, " ".join(str(error).split()))


def _check_config_flags(path):
    """Ends the program where there is no such configuration or setting.

    What ml_collections raises does not name the flag.
    """
    overrides = []
    for index, argument in enumerate(sys.argv):
        name, equals, value = argument.partition("=")
        if name in ("--config", "-config"):
            path = value if equals else "".join(sys.argv[index + 1 :][:1])
            if not path:
                return  # absl says that a value is missing.
        elif match := re.match(r"--?(?:no)?config\.([^\[]+)", name):
            overrides.append(match[1])
    file, *parameter = path.split(":", 1)
    if not os.path.isfile(file):
        others = map(str, pathlib.Path(file).parent.glob("*.py"))
        near = difflib.get_close_matches(file, others, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        sys.exit(
            f"--config must be a file that is there.{hint} Received: {file}"
        )
    try:
        names = runpy.run_path(file)
    except SyntaxError as error:
        sys.exit(f"--config must be a Python file: {error}. Received: {file}")
    if "get_config" not in names:
        sys.exit(f"--config must define `get_config()`. Received: {file}")
    keys = list(_leaves(names["get_config"](*parameter)))
    for key in overrides:
        if key in keys:
            continue
        inside = [
            other.removeprefix(f"{key}.").partition(".")[0]
            for other in keys
            if other.startswith(f"{key}.")
        ]
        if inside:
            listed = ", ".join(dict.fromkeys(inside))
            sys.exit(
                f"--config.{key} is a group of settings. Pass "
                f"--config.{key}.<one of them>: {listed}"
            )
        near = difflib.get_close_matches(key, keys, n=1, cutoff=0.0)
        sys.exit(
            f"--config.{key} is no setting of {file}. Did you mean "
            f"--config.{near[0]}?"
        )


def _leaves(config, prefix=""):
    for key in config:
        if hasattr(config[key], "to_dict"):
            yield from _leaves(config[key], f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"
