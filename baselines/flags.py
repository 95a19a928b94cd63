"""Flags and errors of the scripts; `--help` does not import `caltrain_tf`."""

import os
import pathlib
import sys

# Keeps TensorFlow's log lines out of the progress bar.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Whichever backend the user's own programs have.
os.environ["KERAS_BACKEND"] = "tensorflow"
_INSTALL = 'Run `pip install "caltrain_tf[tensorflow,baselines]"`.'

try:
    from absl import app, flags, logging
    from absl.flags import *  # noqa: F403
    from ml_collections import config_flags
except ImportError as error:
    sys.exit(f"{error}. {_INSTALL}")

# `--helpshort` lists the flags of the script, which are defined here.
flags.disclaim_key_flags()

FLAGS = flags.FLAGS
ROOT = pathlib.Path(__file__).parents[1]
OBJECTIVE = ("primary", "secondary", "interleaved")
DEVICES = ("tpu", "num_gpus", "multi_worker")
_TEXTS = {
    "primary": "Primary loss: nll, focal, mse, dual_focal or bsce_gra.",
    "secondary": "Secondary loss: sb_ece, s_avuc, avuc, avuc_gs, mmce, "
    "sb_marginal_ece, esd, mdca, dca, mbls, acls or none.",
    "interleaved": "Whether the secondary loss has training data of its own.",
    "tpu": "`local`, or the name of a TPU.",
    "num_gpus": "Number of GPUs; all by default.",
    "multi_worker": "Whether TF_CONFIG names many machines.",
    "data_dir": "Folder of TensorFlow Datasets.",
    "output_dir": "Folder of the run; runs/<primary>+<secondary> by default. "
    "The same command resumes a run that was stopped.",
    "tuned": "Result of baselines/tune.py, which overrides --config.<key>, or "
    'a JSON file such as {"focal+sb_ece": {"loss.beta": 0.3}}.',
    "resume": "Folder of a run that is to be trained as its config.json says.",
    "init_from": "A `.keras` file with the initial weights, or the prefix of a "
    "checkpoint of Uncertainty Baselines.",
}


def define(*names):
    """Defines flags that several scripts share."""
    kinds = {"num_gpus": flags.DEFINE_integer}
    kinds |= dict.fromkeys(("interleaved", "multi_worker"), flags.DEFINE_bool)
    for name in names:
        kinds.get(name, flags.DEFINE_string)(name, None, _TEXTS[name])


def define_integers(name, default, text):
    """Defines a list of integers."""

    class Integers(flags.ListParser):
        def parse(self, argument):
            return list(map(int, super().parse(argument)))

    serializer = flags.ListSerializer(",")
    flags.DEFINE(Integers(), name, default, text, serializer=serializer)


def define_config(default):
    """Defines `--config` and `--config.<key>`, with a file of `configs/`."""
    text = f"Configuration file; configs/{default} by default. "
    text += "--config.<key>=<value> changes a setting: --config.epochs=10."
    config_flags.DEFINE_config_file("config", None, text)
    # Not the flag's default, which would be loaded at once, with TensorFlow.
    FLAGS["config"].file = str(ROOT / "configs" / default)
    define("data_dir")


def define_training(default_config):
    """Defines the flags of a training script."""
    define(*OBJECTIVE, *DEVICES, "output_dir", "tuned", "resume", "init_from")
    define_config(default_config)


def strategy():
    """Returns the strategy of the flags, and prints what it runs on."""
    from caltrain_tf import training

    found = training.get_strategy(FLAGS.tpu, FLAGS.num_gpus, FLAGS.multi_worker)
    kind = found.extended.worker_devices[0].split(":")[-2]
    print(f"Running on {found.num_replicas_in_sync} x {kind}.", flush=True)
    return found


def run(main, *, arguments=False):
    """Runs a script; its errors are one line, unless `--verbosity=1`."""

    def guarded(argv):
        if not FLAGS["verbosity"].present:
            logging.set_verbosity(logging.WARNING)
        if argv[1:] and not arguments:
            return f"Unexpected arguments: {' '.join(argv[1:])}"
        if "CALTRAIN_STOPS_WITH_INPUT" in os.environ:
            from caltrain_tf.experiments import pool

            pool.stop_with_input()
        try:
            return main(argv[1:])
        except (KeyboardInterrupt, SystemExit) as stop:
            code = getattr(stop, "code", 130)
            if code in (130, 143):
                print("\nStopped; the same command goes on.", file=sys.stderr)
            return code
        except (ArithmeticError, ValueError, OSError) as error:
            if logging.get_verbosity() > 0:
                raise
            return " ".join(str(error).split())

    try:
        app.run(guarded, flags_parser=_parse)
    except KeyboardInterrupt:  # Before `main`, while TensorFlow is imported.
        sys.exit(130)
    except ImportError as error:
        hint = "" if "pip install" in str(error) else f". {_INSTALL}"
        sys.exit(f"{error}{hint}")


def run_training(train):
    """Trains unless the run is finished, and prints its results."""

    def main(_):
        from caltrain_tf import checks
        from caltrain_tf.experiments import config as settings
        from caltrain_tf.experiments import experiment

        config, folder = FLAGS.config, FLAGS.resume
        if folder is not None:
            others = (*OBJECTIVE, "output_dir", "tuned", "init_from")
            typed = [f"--{name}" for name in others if FLAGS[name].present]
            overrides = config_flags.get_override_values(FLAGS["config"])
            if typed := [*typed, *(f"--config.{key}" for key in overrides)]:
                text = f"--resume has the settings of {folder}/config.json"
                raise ValueError(f"{text}. Received also: {' '.join(typed)}")
            config = settings.load(folder)
        else:
            losses = FLAGS.primary, FLAGS.secondary, FLAGS.interleaved
            settings.set_objective(config, *losses)
            config.init_from = FLAGS.init_from or config.init_from
            name = settings.objective(config)
            if FLAGS.tuned is not None:
                tuned = settings.read_tuned(FLAGS.tuned, config.data.name)
                checks.choice("--tuned", name, tuned)
                settings.override(config, tuned[name])
            settings.check(config)
            folder = FLAGS.output_dir or os.path.join("runs", name)
        results = experiment.finished(folder, config) or train(config, folder)
        experiment.print_results(config, folder, results)

    run(main)


# Some of ml_collections' errors hold another one.
_WRONG = flags.Error, OSError, AttributeError, KeyError, SyntaxError


def _parse(argv):
    """Parses flags, and loads the default configuration if none is given."""
    try:
        argv = FLAGS(argv, known_only=True)
        if "config" in FLAGS and not FLAGS["config"].present:
            FLAGS["config"].parse(FLAGS["config"].file)
        argv = FLAGS(argv)
        # Of a variable of the shell that is not set.
        for name, value in FLAGS.flag_values_dict().items():
            if FLAGS[name].present and value in ("", []):
                raise flags.Error(f"--{name} must not be empty.")
        return argv
    except _WRONG as error:
        text = " ".join(str(error.args[0]).replace("\\n", " ").split())
        sys.exit(f"Flags: {text} Pass --helpshort to list them.")
