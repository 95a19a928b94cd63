"""Flags of the scripts that execute many runs, on this machine or on Ray."""

import json
import signal
import sys

import flags

FLAGS = flags.FLAGS
flags.disclaim_key_flags()


def define():
    """Defines the flags."""
    flags.define("tpu", "num_gpus")
    text = "Runs at a time, without --ray."
    flags.DEFINE_integer("parallel", 1, text, lower_bound=1)
    flags.DEFINE_string(
        "ray",
        None,
        "Execute the runs on a Ray cluster: `auto`, `local` for a new one on "
        "this machine, or an address. All nodes must share the folders.",
    )
    flags.DEFINE_integer("run_cpus", 1, "With --ray, CPUs of a run.")
    flags.DEFINE_float("run_gpus", 0, "With --ray, GPUs of a run.")
    flags.DEFINE_string(
        "run_resources", "{}", "With --ray, a run's resources: '{\"TPU\": 4}'."
    )
    flags.register_validator(
        "run_resources", _is_dictionary, 'It must be such as {"TPU": 4}.'
    )


def open_pool():
    """Returns the pool of the flags; SIGTERM then stops it as Ctrl-C does."""
    from caltrain_tf.experiments import pool

    if FLAGS.ray is None:
        opened = pool.LocalPool(flags.ROOT, FLAGS.parallel)
    else:
        needs = FLAGS.run_cpus, FLAGS.run_gpus, json.loads(FLAGS.run_resources)
        opened = pool.RayPool(flags.ROOT, FLAGS.ray, *needs)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    return opened


def of_runs():
    """Returns the flags of this script that its runs get too, as typed."""
    names = ("data_dir", "tpu", "num_gpus")
    return [FLAGS[name].serialize() for name in names if FLAGS[name].present]


def _is_dictionary(text):
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
