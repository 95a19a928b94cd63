"""The flags that the training scripts share."""

import os

from absl import app
from absl import flags
from absl import logging
from ml_collections import config_flags

from caltrain_tf import evaluation
from caltrain_tf import training
from caltrain_tf.experiments.train import train

NONE = "none"


def define(default_config):
    """Defines the flags; returns the holder of `--config`.

    Args:
        default_config: The path of the configuration file without `--config`.
    """
    flags.DEFINE_string("primary", None, "Primary loss: nll, focal or mse.")
    flags.DEFINE_string(
        "secondary",
        None,
        "Secondary loss: sb_ece, s_avuc, avuc, avuc_gs, mmce, sb_marginal_ece, "
        "or none.",
    )
    flags.DEFINE_bool(
        "interleaved",
        None,
        "Optimise the secondary loss on a held-out part of the training set.",
    )
    flags.DEFINE_string("tpu", None, "`local`, or the name of a TPU.")
    flags.DEFINE_integer("num_gpus", None, "GPUs to use; all by default.")
    flags.DEFINE_bool(
        "multi_worker", False, "Whether TF_CONFIG names several machines."
    )
    flags.DEFINE_string(
        "output_dir",
        None,
        "Folder of the run; runs/<primary>+<secondary> by default. The same "
        "command goes on with a run that was stopped.",
    )
    flags.DEFINE_string("data_dir", None, "Folder of TensorFlow Datasets.")
    return config_flags.DEFINE_config_file(
        "config", default_config, "Configuration file.", lock_config=True
    )


def read(config_holder):
    """The configuration with the other flags in it.

    Args:
        config_holder: What `define` returned.

    Returns:
        `(config, output_dir)`.
    """
    config, values = config_holder.value, flags.FLAGS
    if values.primary is not None:
        config.loss.primary = values.primary
    if values.secondary is not None:
        is_none = values.secondary == NONE
        config.loss.secondary = None if is_none else values.secondary
    if values.interleaved is not None:
        config.interleaved.enabled = values.interleaved
    output_dir = values.output_dir
    if output_dir is None:
        output_dir = os.path.join("runs", run_name(config))
    return config, output_dir


def run_from_flags(config_holder, argv):
    """Trains as the flags say, and prints the results.

    Args:
        config_holder: What `define` returned.
        argv: The arguments that are no flags; there should be none.
    """
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}")
    quiet_logs()
    values = flags.FLAGS
    strategy = training.get_strategy(
        tpu=values.tpu,
        num_gpus=values.num_gpus,
        multi_worker=values.multi_worker,
    )
    config, output_dir = read(config_holder)
    results = train(config, output_dir, values.data_dir, strategy)
    print(f"\n{run_name(config)} on {config.data.name}, test split")
    print(evaluation.results_table(results))
    print(f"\nEverything is in {output_dir}")


def quiet_logs():
    """Leaves out what TensorFlow reports, unless `--verbosity` asks for it.

    It would stand in the middle of our progress.
    """
    if not flags.FLAGS["verbosity"].present:
        logging.set_verbosity(logging.WARNING)


def run_name(config):
    """How a run is called: `focal+sb_ece`, `nll+s_avuc interleaved`."""
    name = config.loss.primary
    if config.loss.secondary is not None:
        name += f"+{config.loss.secondary}"
    return name + ("-interleaved" if config.interleaved.enabled else "")
